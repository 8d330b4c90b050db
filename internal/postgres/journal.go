package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// Journal is the one writer and reader of what happened. It is safe for
// concurrent use by any number of goroutines and processes.
type Journal struct {
	// Warn is told what the journal passed over; set it before use. It does nothing
	// at first.
	Warn func(error)

	hot      *sql.DB  // batches: one statement at a time per kind, plans pinned to indexes
	openLane *lane    // submissions that wait for a lock
	waitLane *lane    // moves that wait for a lock
	moveLane *lane    // transactions that write more than a move
	reads    *sqlx.DB // everything that people ask
	beats    *sql.DB  // one connection: this process shows that it lives

	sequence  *sql.DB       // sequencers, each with a connection that keeps the lock
	committed chan struct{} // this process has written receipts

	projecting *sql.DB // steps of the projection of letters
	finding    *sql.DB // searches in it, plans pinned to what was chosen

	moves  *batcher[*sealed, receipts.CaseID, verdict]
	deaths *batcher[*sealed, receipts.CaseID, verdict] // those whose handlers begin
	opens  *batcher[*sealed, subject, opened]
	finds  *batcher[background.RunID, background.RunID, Snapshot]
	move   bound
	open   bound
	find   bound

	hotMove   bound
	freshOpen bound

	recent *lru.Cache[background.RunID, *Snapshot] // what this process last saw; only ever a hint
	known  *met
	passed passedOver
}

type subject struct {
	tenant  string
	kind    Kind
	subject string
}

// statementLimit bounds one batch: past it the connection is given up and the
// outcome is read again.
const statementLimit = 15 * time.Second

const recentSize = 8192

// plans pins the journal's own statements to indexed nested loops: on tables that
// are new and not yet analysed the planner would choose sequential scans, and keep
// them.
var plans = map[string]string{
	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off", "jit": "off",
}

// Open connects to a database whose schema is current. It returns ErrSchema when
// it is not, and ErrUnsuitable behind a pooler that lends its connections one session
// for each transaction, without changing anything.
func Open(ctx context.Context, databaseURL string) (*Journal, error) {
	j := &Journal{committed: make(chan struct{}, 1), Warn: func(error) {}}
	var err error
	quiet := newSilence()
	if j.hot, err = pool(databaseURL, connections{purpose: "batches", most: 6, settings: plans, binary: true, dialer: quiet.within(silenceLimit)}); err != nil {
		return nil, err
	}
	if j.openLane, err = newLane(databaseURL, "waiting submissions", quiet, submitPatience); err != nil {
		return nil, err
	}
	if j.waitLane, err = newLane(databaseURL, "waiting moves", quiet, movePatience); err != nil {
		return nil, err
	}
	if j.moveLane, err = newLane(databaseURL, "transactions", quiet, movePatience); err != nil {
		return nil, err
	}
	reads, err := pool(databaseURL, connections{purpose: "questions", most: 10, dialer: quiet.within(readSilence)})
	if err != nil {
		return nil, err
	}
	j.reads = sqlx.NewDb(reads, "postgres")
	if j.beats, err = pool(databaseURL, connections{purpose: "heartbeat", most: 1, dialer: quiet.within(beatSilence)}); err != nil {
		return nil, err
	}
	if j.sequence, err = pool(databaseURL, connections{purpose: "sequencer", most: 4, settings: sequencerSettings(), dialer: quiet.within(silenceLimit)}); err != nil {
		return nil, err
	}
	if j.projecting, err = pool(databaseURL, connections{purpose: "projection", most: 2, settings: projectionSettings(), dialer: quiet.within(silenceLimit)}); err != nil {
		return nil, err
	}
	if j.finding, err = pool(databaseURL, connections{purpose: "search", most: 6, settings: findingSettings, dialer: quiet.within(readSilence)}); err != nil {
		return nil, err
	}
	if err := j.prepare(ctx); err != nil {
		j.closePools()
		return nil, err
	}
	j.moves = newBatcher(func(s *sealed) receipts.CaseID { return s.After.Case.ID }, j.flushMoves)
	j.deaths = newBatcher(func(s *sealed) receipts.CaseID { return s.After.Case.ID }, j.flushDeaths)
	j.opens = newBatcher(func(s *sealed) subject {
		return subject{s.After.Case.Tenant, s.After.Case.Kind, s.After.Case.Subject}
	}, j.flushOpens)
	j.finds = newBatcher(func(id background.RunID) background.RunID { return id }, j.flushFinds)
	return j, nil
}

func (j *Journal) prepare(ctx context.Context) (err error) {
	if err := j.Unpooled(ctx); err != nil {
		return err
	}
	if err := CheckSchema(ctx, j.reads.DB); err != nil {
		return err
	}
	if j.move, err = bind(ctx, j.hot, skipping(moveSQL)); err != nil {
		return err
	}
	if j.open, err = bind(ctx, j.hot, trying(openSQL)); err != nil {
		return err
	}
	if j.hotMove, err = bind(ctx, j.hot, hotSQL); err != nil {
		return err
	}
	if j.freshOpen, err = bind(ctx, j.hot, freshSQL); err != nil {
		return err
	}
	if j.find, err = bind(ctx, j.hot, byRunsSQL); err != nil {
		return err
	}
	if j.recent, err = lru.New[background.RunID, *Snapshot](recentSize); err != nil {
		return err
	}
	j.known = newMet()
	return nil
}

// Close writes what was handed over and closes the connections.
func (j *Journal) Close() {
	j.opens.close()
	j.moves.close()
	j.deaths.close()
	j.finds.close()
	j.closePools()
}

// closePools lets the connections go. Nothing is left to be written by then, and
// a connection that broke before has no farewell to fail.
func (j *Journal) closePools() {
	for _, db := range []*sql.DB{j.hot, j.openLane.db, j.waitLane.db, j.moveLane.db, j.reads.DB, j.beats, j.sequence, j.projecting, j.finding} {
		_ = db.Close()
	}
}

// Ping asks the database for an answer.
func (j *Journal) Ping(ctx context.Context) error { return j.reads.PingContext(ctx) }

// bound is a prepared statement that answers like the connection it is bound to.
// database/sql prepares it again on every new connection, so it survives a
// restart of the server.
type bound struct{ stmt *sql.Stmt }

func bind(ctx context.Context, db *sql.DB, text string) (bound, error) {
	stmt, err := db.PrepareContext(ctx, text)
	if err != nil {
		return bound{}, fmt.Errorf("postgres: prepare: %w", err)
	}
	return bound{stmt}, nil
}

func (b bound) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return b.stmt.QueryContext(ctx, args...)
}
