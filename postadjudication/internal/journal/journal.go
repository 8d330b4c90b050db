package journal

import (
	"context"
	"database/sql"
	"errors"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// Journal is the one writer of runs, cases and receipts. What is read, and what is stored
// beside them, is in its parts. It is safe for concurrent use by any number of goroutines and
// processes.
type Journal struct {
	*shared

	Cases         *Cases
	Receipts      *Receipts
	Outbox        *Outbox
	Escrows       *Escrows
	Letters       *Letters
	Lookups       *Lookups
	Rules         *Rules
	Policies      *Policies
	People        *PeopleStore
	Keys          *Keys
	Requests      *IdempotentRequests
	Operations    *OperationLogs
	Targets       *Targets
	Notifications *Notifications
	Breakers      *BreakerStore
	Sessions      *SessionStore
	Leases        *LeaseStore
	Database      *Database
	Levels        *LevelReader

	opener         *opener
	transitionPath *pg.SlowPath // transitions that wait for a lock

	transitions          pg.Batcher[*chainedChange, result]
	handledDeaths        pg.Batcher[*chainedChange, result] // deaths that start a letter handler; other deaths are in transitions
	leaseEnds            pg.Batcher[*chainedChange, result] // ends of attempts of remote workers
	snapshotReads        pg.Batcher[background.RunID, *Snapshot]
	wideTransitionStmt   *pg.Statement
	narrowTransitionStmt *pg.Statement
	aloneStmts           map[*pg.SlowPath]*pg.Statement // wideTransitionSQL on each slow path; that of txPath skips locked rows, since write waits on another path
	findStmt             *pg.Statement

	cache snapshotCache
}

// snapshotCache has what this process last wrote of a run; it may be stale. It is an interface, as
// pg.Batcher is, so that only this package compiles the cache.
type snapshotCache interface {
	Get(run background.RunID) (s *Snapshot, ok bool)
	Add(run background.RunID, s *Snapshot) (evicted bool)
	Remove(run background.RunID) (present bool)
}

// shared is what all parts of a Journal use.
type shared struct {
	// Warn is called with errors that fail no call, such as those of unreadable rows that
	// were skipped. Set it before use. By default it does nothing.
	Warn func(error)

	batchDB *sql.DB  // batches: one statement at a time per kind, generic plans that use indexes
	readDB  *sqlx.DB // reads for people and callers, which may take long
	// Transactions of more than one statement. A change that is written alone does not wait for its case here; settings,
	// receipts of refusals and submissions of unique jobs may, LockTimeout at most for each lock.
	txPath          *pg.SlowPath
	IdleTimeout     *pg.IdleTimeout // of all connections of this process to the database
	receiptsWritten chan struct{}   // signalled when this process has written receipts

	unreadableRuns unreadableTracker
}

// Engine is the Journal as the engine uses it.
type Engine struct {
	*Cases
	*Notifications
	*SessionStore
	*BreakerStore
}

var _ background.Store = Engine{}

// Engine returns what the engine reads and writes besides transitions.
func (j *Journal) Engine() Engine {
	return Engine{j.Cases, j.Notifications, j.Sessions, j.Breakers}
}

type subjectKey struct {
	tenant  string
	kind    Kind
	subject string
}

const cacheSize = 8192

// Open connects to a database whose schema is current, and changes nothing there. Errors:
// ErrSchema if the schema is not current; ErrUnsuitable behind a pooler that assigns
// sessions per transaction.
func Open(ctx context.Context, databaseURL string) (*Journal, error) {
	j := newJournal()
	err := j.openPools(databaseURL)
	if err == nil {
		err = j.prepare(ctx)
	}
	if err != nil {
		j.closePools()
		return nil, err
	}
	// Each batcher writes by the flush that is named here: flushTransitions in transitionsql.go, flushLeaseEnds in
	// heldleases.go, flushHandledDeaths in letterhandlers.go, flushOpens in opensql.go, LeaseStore.flush in
	// leaseclaims.go, findBatch in snapshot.go.
	j.transitions = pg.NewBatcher(func(ch *chainedChange) receipts.CaseID { return ch.After.Case.ID }, j.flushTransitions)
	j.Leases.claims = pg.NewBatcher(func(c *Claim) *Claim { return c }, j.Leases.flush)
	j.leaseEnds = pg.NewBatcher(func(ch *chainedChange) receipts.CaseID { return ch.After.Case.ID }, j.flushLeaseEnds)
	j.handledDeaths = pg.NewBatcher(func(ch *chainedChange) receipts.CaseID { return ch.After.Case.ID }, j.flushHandledDeaths)
	j.opener.opens = pg.NewBatcher(func(ch *chainedChange) subjectKey {
		return subjectKey{ch.After.Case.Tenant, ch.After.Case.Kind, ch.After.Case.Subject}
	}, j.opener.flushOpens)
	j.snapshotReads = pg.NewBatcher(func(id background.RunID) background.RunID { return id }, j.findBatch)
	j.Cases.snapshotReads = j.snapshotReads
	return j, nil
}

// newJournal makes a Journal without connections.
func newJournal() *Journal {
	s := &shared{receiptsWritten: make(chan struct{}, 1), Warn: func(error) {}, IdleTimeout: pg.NewIdleTimeout()}
	cases, outbox := &Cases{shared: s}, &Outbox{shared: s}
	j := &Journal{
		shared: s, Cases: cases, Receipts: &Receipts{shared: s}, Outbox: outbox, Escrows: &Escrows{s}, Letters: &Letters{shared: s}, Lookups: &Lookups{s, cases},
		Rules: &Rules{s}, Policies: &Policies{s}, People: &PeopleStore{s},
		Keys: &Keys{s}, Requests: &IdempotentRequests{s}, Operations: &OperationLogs{s}, Targets: &Targets{s}, Breakers: &BreakerStore{s},
		Sessions: &SessionStore{shared: s}, Database: &Database{shared: s}, Levels: &LevelReader{s},
		Notifications: &Notifications{s}, opener: &opener{shared: s, turns: newSubmissionTurns()},
	}
	j.Leases = &LeaseStore{j: j, keyed: newKeyedClaims()}
	return j
}

// How long others that need the same lock wait for the first change that waits for it, before they are ErrBusy.
const (
	// submitBusyAfter is longer than statements of other processes hold the lock of an escrow.
	// Whoever holds it for longer is a caller's transaction, which may hold it for any time.
	submitBusyAfter     = pg.LockTimeout / 2
	transitionBusyAfter = 2 * pg.LockTimeout
)

// openPools opens the connections. There are three slow paths, so that none queues behind another:
// submissions that wait for another transaction, transitions that do, and transactions of more than
// one statement.
func (j *Journal) openPools(databaseURL string) (err error) {
	if j.batchDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "batches", MaxConns: 6, Settings: pg.PlannerSettings, Binary: true, Dialer: j.IdleTimeout.Dialer(pg.BatchIdleLimit)}); err != nil {
		return err
	}
	if j.opener.submitPath, err = pg.NewSlowPath(databaseURL, "waiting submissions", j.IdleTimeout, submitBusyAfter, ErrBusy); err != nil {
		return err
	}
	if j.transitionPath, err = pg.NewSlowPath(databaseURL, "waiting transitions", j.IdleTimeout, transitionBusyAfter, ErrBusy); err != nil {
		return err
	}
	if j.txPath, err = pg.NewSlowPath(databaseURL, "transactions", j.IdleTimeout, transitionBusyAfter, ErrBusy); err != nil {
		return err
	}
	reads, err := pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "queries", MaxConns: 10, Dialer: j.IdleTimeout.Dialer(pg.ReadIdleLimit)})
	if err != nil {
		return err
	}
	j.readDB = sqlx.NewDb(reads, "postgres")
	if j.Sessions.heartbeatDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "heartbeat", MaxConns: 1, Dialer: j.IdleTimeout.Dialer(pg.HeartbeatIdleLimit)}); err != nil {
		return err
	}
	if err = j.Leases.open(databaseURL); err != nil {
		return err
	}
	if j.Outbox.sequencerDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "sequencer", MaxConns: 4, Settings: SequencerSettings(), Dialer: j.IdleTimeout.Dialer(pg.BatchIdleLimit)}); err != nil {
		return err
	}
	// The sender of webhooks has a pool of its own, because plans can hold all connections of the pool of locks
	// for hours. It takes the second connection while the server still closes the first.
	if j.Outbox.senderDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "webhooks", MaxConns: 2, Settings: SequencerSettings(), Dialer: j.IdleTimeout.Dialer(pg.BatchIdleLimit)}); err != nil {
		return err
	}
	return nil
}

// defineStatements defines the statements that are prepared, each when it is first used.
func (j *Journal) defineStatements() {
	j.wideTransitionStmt = pg.NewStatement(j.batchDB, withSkipLocked(wideTransitionSQL))
	j.narrowTransitionStmt = pg.NewStatement(j.batchDB, narrowTransitionSQL)
	j.aloneStmts = map[*pg.SlowPath]*pg.Statement{
		j.txPath:            pg.NewStatement(j.txPath.DB, withSkipLocked(wideTransitionSQL)),
		j.transitionPath:    pg.NewStatement(j.transitionPath.DB, withLockWait(wideTransitionSQL)),
		j.opener.submitPath: pg.NewStatement(j.opener.submitPath.DB, withLockWait(wideTransitionSQL)),
	}
	j.findStmt = pg.NewStatement(j.batchDB, byRunsSQL)
	j.opener.wideOpenStmt = pg.NewStatement(j.batchDB, withTryLock(wideOpenSQL))
	j.opener.openInTxStmt = pg.NewStatement(j.txPath.DB, withTryLock(wideOpenSQL))
	j.opener.replaceStmt = pg.NewStatement(j.txPath.DB, withLockWait(wideTransitionSQL))
	j.opener.holdersStmt = pg.NewStatement(j.txPath.DB, holdersSQL)
	j.opener.narrowOpenStmt = pg.NewStatement(j.batchDB, narrowOpenSQL)
	j.Cases.byRunsStmt = pg.NewStatement(j.readDB.DB, byRunsSQL)
	j.Cases.byCaseStmt = pg.NewStatement(j.readDB.DB, byCaseSQL)
	j.Letters.handlersStmt = pg.NewStatement(j.readDB.DB, handlersSQL)
	j.Letters.listedRunsStmt = pg.NewStatement(j.readDB.DB, listedRunsSQL)
	j.Receipts.recentStmt = pg.NewStatement(j.readDB.DB, recentReceiptsSQL)
	j.Leases.endStmt = pg.NewStatement(j.batchDB, leaseEndSQL)
	j.Leases.dueStmt = pg.NewStatement(j.Leases.fetchDB, dueRemoteSQL)
	j.Leases.claimStmt = pg.NewStatement(j.Leases.fetchDB, leaseClaimSQL)
}

// prepare checks the database, and makes what needs no connection until it is used.
func (j *Journal) prepare(ctx context.Context) (err error) {
	if err := j.Database.CheckNotPooled(ctx); err != nil {
		return err
	}
	if err := stored.CheckSchema(ctx, j.readDB.DB); err != nil {
		return err
	}
	if j.cache, err = lru.New[background.RunID, *Snapshot](cacheSize); err != nil {
		return err
	}
	j.opener.knownEscrows = newEscrowCache()
	j.defineStatements()
	return nil
}

// Close writes the rows of the calls that still wait for their commit, then closes the
// connections. Later calls fail.
func (j *Journal) Close() {
	j.opener.opens.Close()
	j.transitions.Close()
	j.handledDeaths.Close()
	j.leaseEnds.Close()
	j.Leases.claims.Close()
	j.snapshotReads.Close()
	j.closePools()
}

// closePools closes the pools that are open. It ignores the errors of Close: nothing is left to be
// written by then, and a connection that broke before fails to close.
func (j *Journal) closePools() {
	pools := []*sql.DB{j.batchDB, j.Sessions.heartbeatDB, j.Outbox.sequencerDB, j.Outbox.senderDB, j.Leases.fetchDB}
	for _, path := range []*pg.SlowPath{j.opener.submitPath, j.transitionPath, j.txPath} {
		if path != nil {
			pools = append(pools, path.DB)
		}
	}
	if j.readDB != nil {
		pools = append(pools, j.readDB.DB)
	}
	for _, db := range pools {
		if db != nil {
			_ = db.Close()
		}
	}
}

// BatchStats counts the batches of transitions of existing cases, and those of new cases. The first are also
// those of deaths with their handlers, and of ends of remote attempts. Claims of remote workers, and changes
// that are written alone, are in neither. A row counts also if it was not written, and again when it is
// tried again.
func (j *Journal) BatchStats() (transitions, opens pg.BatchStats) {
	return j.transitions.Stats().Add(j.handledDeaths.Stats()).Add(j.leaseEnds.Stats()), j.opener.opens.Stats()
}

// Reads returns the pool of reads for people and callers, for statements that only read. It is valid
// until Close.
func (j *Journal) Reads() *sql.DB { return j.readDB.DB }

// Ping checks that the database answers. It waits for none of the connections of reads, which callers may keep
// for long.
func (j *Journal) Ping(ctx context.Context) error { return j.batchDB.PingContext(ctx) }

// InSlowPathTx runs a transaction on a slow path, between its two failpoints. If it returns
// an error nothing was written, except that the answer of the commit may be lost.
func (s *shared) InSlowPathTx(ctx context.Context, point string, do func(context.Context, *sql.Tx) error) (err error) {
	if !s.txPath.Acquire(ctx) {
		return ErrBusy
	}
	defer s.txPath.Release()
	return s.InTx(ctx, s.txPath.DB, point, do)
}

// InTx is InSlowPathTx on another pool. Its statements must not wait for locks.
func (s *shared) InTx(ctx context.Context, db *sql.DB, point string, do func(context.Context, *sql.Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if err := do(ctx, tx); err != nil {
		if pg.IsContention(err) {
			return ErrBusy
		}
		return err
	}
	failpoint.Hit(failpoint.JournalBefore, point)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return pg.Wrap(err)
	}
	s.SignalCommitted()
	return nil
}
