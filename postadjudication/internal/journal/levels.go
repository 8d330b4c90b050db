package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/settlement"
)

// Levels are counts over all tenants. Each part is of one moment.
type Levels struct {
	Runs           map[background.State]int64 // live runs that are delivered; under dead_lettered, open dead letters
	OldestDue      time.Time                  // due time of the oldest waiting run whose call is not accepted by its service; zero if none is due
	JobLetters     map[string]int64           // open dead letters of jobs, of the maxJobQueues longest queues by name, of the others under OtherQueues
	AtRisk         settlement.Sums            // reserved by cases with an open dead letter
	WithoutLetter  settlement.Sums            // reserved by cases with neither a live run nor an open dead letter
	Held           int64                      // open dead letters with a hold
	Breaches                                  // of conservation
	BrokeGlass     int64                      // bulk plans that one person started for an incident though two are required; never falls
	PlansWaiting   int64                      // bulk plans that nobody has started, and that would do something
	OldestUnfolded time.Time                  // when the oldest delta that is not folded yet was recorded; zero if there is none
	Unserved       int64                      // live runs in queues that no running process serves
	Uncalled       int64                      // live runs and open dead letters of escrow services that no running process calls
	Unknown        Unresolved                 // open dead letters of settlements of unknown outcome
	Expiring       map[string]int64           // open dead letters that retention purges within seven days, or would have purged: family -> count
	Failed         map[string]error           // why a part could not be read, by its name: its numbers say nothing
}

// The queries repeat the predicates of the partial indexes on runs, so that none reads the
// runs that have ended.
const (
	liveSQL        = `SELECT state, count(*), min(due_at) FILTER (WHERE state <> 'running' AND due_at <= $1 AND reason <> 'accepted') FROM recourse.runs WHERE live AND NOT remote GROUP BY state`
	openLettersSQL = `SELECT coalesce(e.currency, ''), CASE WHEN r.remote THEN r.queue ELSE '' END, count(*), coalesce(sum(c.reserved), 0)
		FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id LEFT JOIN recourse.escrows e ON e.id = c.escrow_id
		WHERE r.active AND r.letter = 'open' GROUP BY 1, 2 ORDER BY 3 DESC`
	unfoldedSinceSQL = `SELECT min(r.at) FROM recourse.escrow_deltas d JOIN recourse.receipts r ON r.case_id = d.case_id AND r.seq = d.seq`
	brokeGlassSQL    = `SELECT count(*) FROM recourse.bulks WHERE incident <> ''`
	plansWaitingSQL  = `SELECT count(*) FROM recourse.bulks WHERE ` + stored.WaitingBulks
	heldSQL          = `SELECT count(*) FROM recourse.annotations k JOIN recourse.runs r ON r.id = k.run_id WHERE k.held AND r.letter = 'open'`
)

const (
	maxJobQueues = 100
	// OtherQueues stands for the queues that Levels.JobLetters does not name.
	OtherQueues = "other"
)

// LevelReader reads Levels and what of them is read by itself.
type LevelReader struct {
	*shared
}

// ReadPart reads one part. If it fails, the other parts are read all the same: they have at least half of the time that is left.
func (l *Levels) ReadPart(ctx context.Context, part string, read func(context.Context) error) {
	if end, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	if err := read(ctx); err != nil {
		if l.Failed == nil {
			l.Failed = map[string]error{}
		}
		l.Failed[part] = fmt.Errorf("the levels %s: %w", part, err)
	}
}

// Err joins the errors of the parts that could not be read.
func (l *Levels) Err() error {
	var all []error
	for _, part := range slices.Sorted(maps.Keys(l.Failed)) {
		all = append(all, l.Failed[part])
	}
	return errors.Join(all...)
}

// Read measures all but Expiring, Unserved and Uncalled, as of now. It reads every live
// run that is delivered, every open dead letter, and every letter that was purged: call it rarely.
func (m *LevelReader) Read(ctx context.Context, now time.Time) (l Levels) {
	l = Levels{Runs: map[background.State]int64{}, AtRisk: settlement.Sums{}, WithoutLetter: settlement.Sums{}, JobLetters: map[string]int64{}}
	count := func(part, query string, to ...any) {
		l.ReadPart(ctx, part, func(ctx context.Context) error { return pg.Wrap(m.readDB.QueryRowContext(ctx, query).Scan(to...)) })
	}
	count("held", heldSQL, &l.Held)
	count("break_glass", brokeGlassSQL, &l.BrokeGlass)
	count("plans_waiting", plansWaitingSQL, &l.PlansWaiting)
	count("unknown", unresolvedSQL, &l.Unknown.ForLookup, &l.Unknown.ForPerson)
	var since sql.NullTime
	if count("escrow_deltas", unfoldedSinceSQL, &since); since.Valid {
		l.OldestUnfolded = since.Time.UTC()
	}
	l.ReadPart(ctx, "breaches", func(ctx context.Context) error { return l.Breaches.read(ctx, m.readDB) })
	l.ReadPart(ctx, "runs", func(ctx context.Context) error { return pg.Wrap(l.measureLive(ctx, m.readDB, now)) })
	l.ReadPart(ctx, "dead_letters", func(ctx context.Context) error { return pg.Wrap(l.measureLetters(ctx, m.readDB)) })
	l.ReadPart(ctx, "without_letter", func(ctx context.Context) error { return pg.Wrap(l.measureWithoutLetter(ctx, m.readDB)) })
	return l
}

func (l *Levels) measureWithoutLetter(ctx context.Context, db *sqlx.DB) error {
	rows, err := db.QueryContext(ctx, moneyWithoutLetterSQL)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var currency string
		var reserved settlement.Sum
		if err := rows.Scan(&currency, &reserved); err != nil {
			return err
		}
		l.WithoutLetter.Add(currency, reserved)
	}
	return rows.Err()
}

func (l *Levels) measureLive(ctx context.Context, db *sqlx.DB, now time.Time) error {
	rows, err := db.QueryContext(ctx, liveSQL, now)
	if err != nil {
		return err
	}
	defer rows.Close()
	for _, s := range []background.State{background.Pending, background.Running, background.Scheduled} {
		l.Runs[s] = 0
	}
	for rows.Next() {
		var state background.State
		var n int64
		var due sql.NullTime
		if err := rows.Scan(&state, &n, &due); err != nil {
			return err
		}
		l.Runs[state] = n
		if due.Valid && (l.OldestDue.IsZero() || due.Time.Before(l.OldestDue)) {
			l.OldestDue = due.Time.UTC()
		}
	}
	return rows.Err()
}

func (l *Levels) measureLetters(ctx context.Context, db *sqlx.DB) error {
	rows, err := db.QueryContext(ctx, openLettersSQL)
	if err != nil {
		return err
	}
	defer rows.Close()
	l.Runs[background.DeadLettered] = 0
	for rows.Next() {
		var currency, queue string
		var n int64
		var reserved settlement.Sum
		if err := rows.Scan(&currency, &queue, &n, &reserved); err != nil {
			return err
		}
		l.Runs[background.DeadLettered] += n
		l.AtRisk.Add(currency, reserved)
		if queue != "" {
			if len(l.JobLetters) >= maxJobQueues {
				queue = OtherQueues
			}
			l.JobLetters[queue] += n
		}
	}
	return rows.Err()
}

// Unserved is the number of live runs in a queue that no process serves.
type Unserved struct {
	Family string `db:"family" json:"family"`
	Queue  string `db:"queue" json:"queue"`
	Runs   int64  `db:"runs" json:"runs"`
}

const unservedSQL = `SELECT r.family, r.queue, count(*) AS runs FROM recourse.runs r WHERE r.live AND NOT r.remote
	AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $1 AND r.queue = ANY (s.queues)) GROUP BY 1, 2 ORDER BY 1, 2`

// Unserved lists the queues of live runs that no process with a heartbeat since a time
// serves. It reads every live run.
func (m *LevelReader) Unserved(ctx context.Context, since time.Time) ([]Unserved, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var out []Unserved
	return out, pg.Wrap(m.readDB.SelectContext(ctx, &out, unservedSQL, since))
}
