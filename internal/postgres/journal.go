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

// Journal is the one writer and reader of runs, cases and receipts. It is safe for
// concurrent use by any number of goroutines and processes.
type Journal struct {
	// Warn is called with errors that fail no call, such as those of unreadable rows that
	// were skipped. Set it before use. By default it does nothing.
	Warn func(error)

	batchDB        *sql.DB   // batches: one statement at a time per kind, generic plans that use indexes
	submitPath     *slowPath // submissions that wait for a lock
	transitionPath *slowPath // transitions that wait for a lock
	txPath         *slowPath // transactions with side effects
	readDB         *sqlx.DB  // queries of people
	heartbeatDB    *sql.DB   // one connection: the heartbeat of this process

	sequencerDB *sql.DB       // sequencers, each with a connection that holds the lock
	committed   chan struct{} // signalled when this process has written receipts

	projectionDB *sql.DB // steps of the search index
	searchDB     *sql.DB // searches, with plans forced to the chosen index

	transitions    *batcher[*chainedChange, receipts.CaseID, result]
	deaths         *batcher[*chainedChange, receipts.CaseID, result] // deaths whose handlers begin
	opens          *batcher[*chainedChange, subjectKey, openResult]
	finds          *batcher[background.RunID, background.RunID, Snapshot]
	transitionStmt preparedStmt
	openStmt       preparedStmt
	findStmt       preparedStmt

	hotTransitionStmt preparedStmt
	hotOpenStmt       preparedStmt

	cache          *lru.Cache[background.RunID, *Snapshot] // what this process last read or wrote; may be stale
	knownEscrows   *escrowCache
	unreadableRuns unreadableTracker
}

type subjectKey struct {
	tenant  string
	kind    Kind
	subject string
}

// statementTimeout bounds one batch. After it the connection is closed and the outcome is
// read again.
const statementTimeout = 15 * time.Second

const cacheSize = 8192

// plannerSettings forces the journal's own statements to indexed nested loops: on tables
// that are new and not yet analysed the planner would choose sequential scans, and keep
// them.
var plannerSettings = map[string]string{
	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off", "jit": "off",
}

// Open connects to a database whose schema is current, and changes nothing there. Errors:
// ErrSchema if the schema is not current; ErrUnsuitable behind a pooler that assigns
// sessions per transaction.
func Open(ctx context.Context, databaseURL string) (*Journal, error) {
	j := &Journal{committed: make(chan struct{}, 1), Warn: func(error) {}}
	var err error
	idle := newIdleTimeout()
	if j.batchDB, err = openPool(databaseURL, poolConfig{purpose: "batches", maxConns: 6, settings: plannerSettings, binary: true, dialer: idle.dialer(batchIdleLimit)}); err != nil {
		return nil, err
	}
	if j.submitPath, err = newSlowPath(databaseURL, "waiting submissions", idle, submitBusyAfter); err != nil {
		return nil, err
	}
	if j.transitionPath, err = newSlowPath(databaseURL, "waiting transitions", idle, transitionBusyAfter); err != nil {
		return nil, err
	}
	if j.txPath, err = newSlowPath(databaseURL, "transactions", idle, transitionBusyAfter); err != nil {
		return nil, err
	}
	reads, err := openPool(databaseURL, poolConfig{purpose: "queries", maxConns: 10, dialer: idle.dialer(readIdleLimit)})
	if err != nil {
		return nil, err
	}
	j.readDB = sqlx.NewDb(reads, "postgres")
	if j.heartbeatDB, err = openPool(databaseURL, poolConfig{purpose: "heartbeat", maxConns: 1, dialer: idle.dialer(heartbeatIdleLimit)}); err != nil {
		return nil, err
	}
	if j.sequencerDB, err = openPool(databaseURL, poolConfig{purpose: "sequencer", maxConns: 4, settings: sequencerSettings(), dialer: idle.dialer(batchIdleLimit)}); err != nil {
		return nil, err
	}
	if j.projectionDB, err = openPool(databaseURL, poolConfig{purpose: "projection", maxConns: 2, settings: projectionSettings(), dialer: idle.dialer(batchIdleLimit)}); err != nil {
		return nil, err
	}
	if j.searchDB, err = openPool(databaseURL, poolConfig{purpose: "search", maxConns: 6, settings: searchSettings, dialer: idle.dialer(readIdleLimit)}); err != nil {
		return nil, err
	}
	if err := j.prepare(ctx); err != nil {
		j.closePools()
		return nil, err
	}
	j.transitions = newBatcher(func(s *chainedChange) receipts.CaseID { return s.After.Case.ID }, j.flushTransitions)
	j.deaths = newBatcher(func(s *chainedChange) receipts.CaseID { return s.After.Case.ID }, j.flushDeaths)
	j.opens = newBatcher(func(s *chainedChange) subjectKey {
		return subjectKey{s.After.Case.Tenant, s.After.Case.Kind, s.After.Case.Subject}
	}, j.flushOpens)
	j.finds = newBatcher(func(id background.RunID) background.RunID { return id }, j.flushFinds)
	return j, nil
}

func (j *Journal) prepare(ctx context.Context) (err error) {
	if err := j.CheckNotPooled(ctx); err != nil {
		return err
	}
	if err := CheckSchema(ctx, j.readDB.DB); err != nil {
		return err
	}
	if j.transitionStmt, err = prepareStmt(ctx, j.batchDB, withSkipLocked(transitionSQL)); err != nil {
		return err
	}
	if j.openStmt, err = prepareStmt(ctx, j.batchDB, withTryLock(openCaseSQL)); err != nil {
		return err
	}
	if j.hotTransitionStmt, err = prepareStmt(ctx, j.batchDB, hotTransitionSQL); err != nil {
		return err
	}
	if j.hotOpenStmt, err = prepareStmt(ctx, j.batchDB, hotOpenSQL); err != nil {
		return err
	}
	if j.findStmt, err = prepareStmt(ctx, j.batchDB, byRunsSQL); err != nil {
		return err
	}
	if j.cache, err = lru.New[background.RunID, *Snapshot](cacheSize); err != nil {
		return err
	}
	j.knownEscrows = newEscrowCache()
	return nil
}

// Close writes the rows that were handed over, then closes the connections.
func (j *Journal) Close() {
	j.opens.close()
	j.transitions.close()
	j.deaths.close()
	j.finds.close()
	j.closePools()
}

// closePools ignores the errors of Close: nothing is left to be written by then, and a
// connection that broke before fails to close.
func (j *Journal) closePools() {
	for _, db := range []*sql.DB{j.batchDB, j.submitPath.db, j.transitionPath.db, j.txPath.db, j.readDB.DB, j.heartbeatDB, j.sequencerDB, j.projectionDB, j.searchDB} {
		_ = db.Close()
	}
}

// Ping checks that the database answers.
func (j *Journal) Ping(ctx context.Context) error { return j.readDB.PingContext(ctx) }

// preparedStmt is a prepared statement with the interface of a connection; it ignores the
// query text. database/sql prepares it again on every new connection, so it survives a
// restart of the server.
type preparedStmt struct{ stmt *sql.Stmt }

func prepareStmt(ctx context.Context, db *sql.DB, query string) (preparedStmt, error) {
	stmt, err := db.PrepareContext(ctx, query)
	if err != nil {
		return preparedStmt{}, fmt.Errorf("postgres: prepare: %w", err)
	}
	return preparedStmt{stmt}, nil
}

func (b preparedStmt) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return b.stmt.QueryContext(ctx, args...)
}
