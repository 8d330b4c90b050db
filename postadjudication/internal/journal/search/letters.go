package search

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Letter is a dead letter as it is now, with its fields in the index. Run and Case
// have what lists show and what decides whether it may be forked; not policy, payload and
// keys.
type Letter struct {
	Run  background.Run
	Case journal.Case

	JobType    string
	Signature  string
	Outcome    settlement.Outcome
	Currency   string
	Amount     int64
	Submission string
	Escrow     string
	Replays    int
	ReplayedBy string
	SeenAt     time.Time

	Held, Eligible, Review bool

	Position Position // where it was found
}

const foundLettersSQL = `
SELECT l.run_id, l.tenant, l.transaction, l.submission, l.escrow, l.amount, l.replays, l.last_seen_at,
  s.job_type, s.signature, s.outcome, s.currency, s.replayed_by, s.held, s.eligible, s.review,
  r.case_id, r.family, r.target, r.queue, r.remote, r.parent_id, r.state, r.letter, r.attempt_count, r.class, r.notification_number, r.dead_at, r.reason, r.error_type, r.error_code, r.error_text,
  c.kind, c.progression, c.asked, c.moved, c.reserved, c.run_id, c.unknown_open, c.first_sent_at
FROM recourse.letters l JOIN recourse.facet_groups s ON s.id = l.facet_group JOIN recourse.runs r ON r.id = l.run_id JOIN recourse.cases c ON c.id = r.case_id
WHERE l.run_id = ANY($1::uuid[])`

// yieldEvery is after how many letters their reader lets others use its processor: a page takes
// milliseconds to decode.
const yieldEvery = 25

// ReadAt reads the letters at positions, in their order. Runs that are no longer dead
// letters are left out.
func ReadAt(ctx context.Context, q pg.Querier, positions []Position) ([]Letter, error) {
	c := pg.NewTextColumns(1, len(positions))
	for _, p := range positions {
		c.ID(p.Run)
	}
	rows, err := q.QueryContext(ctx, foundLettersSQL, c.Args()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	byRun := make(map[background.RunID]Letter, len(positions))
	for rows.Next() {
		l, err := scanLetter(rows)
		if err != nil {
			return nil, err
		}
		if byRun[l.Run.ID] = l; len(byRun)%yieldEvery == 0 {
			tenantlimit.Yield()
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	out := make([]Letter, 0, len(positions))
	for _, p := range positions {
		if l, exists := byRun[p.Run]; exists && l.Run.State == background.DeadLettered && l.Run.Letter != background.LetterPurged {
			l.Position = p
			out = append(out, l)
		}
	}
	return out, nil
}

func scanLetter(rows *sql.Rows) (l Letter, err error) {
	var run, caseID, active uuid.UUID
	var parent uuid.NullUUID
	var sent sql.NullTime
	var failure background.Failure
	r, c := &l.Run, &l.Case
	err = rows.Scan(&run, &r.Tenant, &c.Subject, &l.Submission, &l.Escrow, &l.Amount, &l.Replays, &l.SeenAt,
		&l.JobType, &l.Signature, &l.Outcome, &l.Currency, &l.ReplayedBy, &l.Held, &l.Eligible, &l.Review,
		&caseID, &r.Family, &r.Target, &r.Queue, &r.Remote, &parent, &r.State, &r.Letter, &r.Attempt, &r.Class, &r.NotificationNumber, &r.DeadAt, &r.Reason, &failure.Type, &failure.Code, &failure.Message,
		&c.Kind, &c.State.Progression, &c.State.Asked, &c.State.Moved, &c.State.Reserved, &active, &r.UnknownOpen, &sent)
	if err != nil {
		return l, err
	}
	r.ID, r.Case, r.Parent, c.ID, c.ActiveRun = background.RunID(run), background.CaseID(caseID), background.RunID(parent.UUID), receipts.CaseID(caseID), background.RunID(active)
	r.DeadAt, r.FirstSentAt, l.SeenAt, c.Tenant = r.DeadAt.UTC(), sent.Time.UTC(), l.SeenAt.UTC(), r.Tenant
	if !sent.Valid {
		r.FirstSentAt = time.Time{}
	}
	if failure != (background.Failure{}) {
		r.Failure = &failure
	}
	return l, nil
}

// Filter selects dead letters of a tenant; zero members select everything.
type Filter struct {
	Facets FacetFilter

	Transaction, Submission, Escrow string
	Run                             background.RunID
	NotificationNumber              int // of Run; 0 for any

	DeadFrom, DeadTo         time.Time // DeadTo is exclusive
	MinAttempts, MaxAttempts *int64
	MinAmount, MaxAmount     *int64
	MinReplays, MaxReplays   *int64

	Lifetime     func(family, queue string) (time.Duration, bool) // how long dead letters are kept; false: for ever
	ExpiresUntil time.Time                                        // by Lifetime; inclusive
}

// FacetFilter selects by facet values.
type FacetFilter struct {
	Status, Family, Queue, JobType, Outcome, Reason, Class, ErrorType, Signature, Currency, ReplayedBy string

	JobTypePrefix string // JobType begins with it

	Held, Eligible, Review *bool
	Text                   string // contained in the error's message; in lower case
}

// Order is an order of letters: by a column, then by run.
type Order struct {
	Column     Column
	Descending bool
}

// Column is a column that letters can be ordered by.
type Column string

// The columns.
const (
	ByDeath    Column = "dead_at"
	BySeen     Column = "last_seen_at"
	ByAmount   Column = "amount"
	ByAttempts Column = "attempts"
)

func (c Column) isTime() bool { return c == ByDeath || c == BySeen }

// Position is a position in an order: the value of its column, a time in microseconds
// since 1970, and the run. The zero position is before all.
type Position struct {
	Value int64
	Run   background.RunID
}

// Search finds dead letters of a tenant, strictly after a position, without the first skip of them. It
// returns the position of the last one, even if that could not be read, and whether more follow. Each
// letter is read after its position was found: one that changes meanwhile is returned as it
// is now.
func (i *Index) Search(ctx context.Context, tenant string, f Filter, o Order, after Position, skip, limit int) (found []Letter, more bool, last Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	last = after
	err = i.Do(ctx, tenant, func(*sql.DB) error {
		var positions []Position
		if positions, more, err = i.find(ctx, tenant, f, o, after, skip, limit); err != nil || len(positions) == 0 {
			return pg.Wrap(err)
		}
		last = positions[len(positions)-1]
		found, err = ReadAt(ctx, i.searchDB, positions)
		return pg.Wrap(err)
	})
	return found, more, last, err
}

// SearchPositions finds the positions of the dead letters that Search returns, and reads none of them. Runs that
// are no longer dead letters may be among them.
func (i *Index) SearchPositions(ctx context.Context, tenant string, f Filter, o Order, after Position, skip, limit int) (positions []Position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = i.Do(ctx, tenant, func(*sql.DB) error {
		positions, more, err = i.find(ctx, tenant, f, o, after, skip, limit)
		return pg.Wrap(err)
	})
	return positions, more, err
}

// find finds positions after one, at most limit, without the first skip of them, and whether more follow. It
// reads one snapshot: a letter that changes moves to another facet group, maybe to one that had no letters when
// the plan read the groups, and would be in none of them.
func (i *Index) find(ctx context.Context, tenant string, f Filter, o Order, after Position, skip, limit int) (positions []Position, more bool, err error) {
	err = inSnapshotOf(ctx, i.searchDB, func(ctx context.Context, tx *sql.Tx) error {
		if o.Column == ByDeath && after.Run.IsZero() && skip >= minDaySkip {
			if f, skip, err = skipDays(ctx, tx, tenant, f, o, skip); err != nil {
				return err
			}
		}
		plan, err := PlanSearch(ctx, tx, tenant, f, o, after, skip+limit+1)
		if err != nil || plan.Empty() {
			return err
		}
		positions, err = findBehind(ctx, tx, plan, after, skip, limit+1)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if more = len(positions) > limit; more {
		positions = positions[:limit]
	}
	return positions, more, nil
}

// findBehind finds positions after one, at most limit, without the first skip of them. The plan is for
// skip+limit.
func findBehind(ctx context.Context, tx *sql.Tx, p AccessPlan, after Position, skip, limit int) ([]Position, error) {
	if skip > 0 && !p.checksText() {
		// The server leaves them out: to receive and decode them costs several times as much as to read them.
		query, args := p.Statement(after, skip+limit)
		bounded := p.path == orderedScan && p.scanLimit > 0
		if bounded {
			query, args = p.boundedScanStatement(after, skip+limit)
		}
		found, err := queryPositions(ctx, tx, `SELECT run_id, value FROM (`+query+`) m OFFSET `+strconv.Itoa(skip), args)
		if err != nil || len(found) == limit || !bounded {
			return found, err
		}
		// The scan may have given up; findPositions goes on where it did.
	}
	found, err := findPositions(ctx, tx, p, after, skip+limit)
	return found[min(skip, len(found)):], err
}

// findPositions finds positions after one, at most limit: by trigrams where the text allows
// it, the others by the plan's access path.
func findPositions(ctx context.Context, tx *sql.Tx, p AccessPlan, after Position, limit int) ([]Position, error) {
	indexed, others, ok := p.splitByTrigrams()
	if !ok {
		return findByOrderedScan(ctx, tx, p, after, limit)
	}
	found, ok, err := indexed.findFirst(ctx, tx, after, limit)
	if err != nil {
		return nil, err
	}
	if !ok {
		return findByOrderedScan(ctx, tx, p, after, limit)
	}
	if others.Empty() {
		return found, nil
	}
	others.envelope()
	others.choosePath(int64(limit))
	others.considerOrderedScan(int64(limit))
	rest, err := findByOrderedScan(ctx, tx, others, after, limit)
	found = append(found, rest...)
	slices.SortFunc(found, p.order.compare)
	return found[:min(limit, len(found))], err
}

// findByOrderedScan finds positions, with an ordered scan if the plan says so. If the scan
// reaches its limit before enough were found, the search continues on another path. For a
// text that any message may contain, it continues with an ordered scan unless matches are
// rare.
func findByOrderedScan(ctx context.Context, tx *sql.Tx, p AccessPlan, after Position, limit int) (found []Position, err error) {
	if p.path != orderedScan || p.scanLimit == 0 {
		return findByPath(ctx, tx, p, after, limit)
	}
	query, args := p.boundedScanStatement(after, limit)
	if found, err = queryPositions(ctx, tx, query, args); err != nil || len(found) == limit {
		return found, err
	}
	if len(found) > 0 {
		after = found[len(found)-1]
	}
	limit -= len(found)
	if p.tenantLetters > 0 {
		p.clip(after)
	} else if err := p.readGroups(ctx, tx, after); err != nil {
		return nil, err
	}
	switch {
	case !p.checksText():
		if p.choosePath(int64(limit)); p.path == byRange && p.scanLimit < maxScan && p.estimate() > maxScan { // a longer scan costs less
			p.path, p.scanLimit = orderedScan, maxScan
			rest, err := findByOrderedScan(ctx, tx, p, after, limit)
			return append(found, rest...), err
		}
	case p.matchesAreRare(len(found), limit):
		rest, err := findByHeapScan(ctx, tx, p, after, limit)
		return append(found, rest...), err
	}
	rest, err := findByPath(ctx, tx, p, after, limit)
	return append(found, rest...), err
}

// findByPath finds positions by the plan's access path.
func findByPath(ctx context.Context, tx *sql.Tx, p AccessPlan, after Position, limit int) ([]Position, error) {
	if p.Empty() {
		return nil, nil
	}
	return p.Find(ctx, tx, after, limit)
}

// Find finds positions by the plan's access path, without a scan limit.
func (p *AccessPlan) Find(ctx context.Context, q pg.Querier, after Position, limit int) ([]Position, error) {
	query, args := p.Statement(after, limit)
	return queryPositions(ctx, q, query, args)
}

func queryPositions(ctx context.Context, q pg.Querier, query string, args []any) ([]Position, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Position
	for rows.Next() {
		var id uuid.UUID
		var value any
		if err := rows.Scan(&id, &value); err != nil {
			return nil, err
		}
		out = append(out, positionOf(id, value))
	}
	return out, rows.Err()
}

// positionOf converts a value of the order's column.
func positionOf(id uuid.UUID, value any) Position {
	position := Position{Run: background.RunID(id)}
	switch v := value.(type) {
	case time.Time:
		position.Value = v.UnixMicro()
	case int64:
		position.Value = v
	}
	return position
}

// compare compares two positions in the order.
func (o Order) compare(a, b Position) int {
	if o.Descending {
		a, b = b, a
	}
	return cmp.Or(cmp.Compare(a.Value, b.Value), bytes.Compare(a.Run[:], b.Run[:]))
}
