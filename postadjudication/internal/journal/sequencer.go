package journal

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Sequencer numbers committed receipts, in the one order of events. Any number of processes
// may have one; only the holder of the lock numbers. The lock ends with the connection, so
// that a holder that dies, hangs or is cut off releases it. A Sequencer is for one
// goroutine.
//
//	(no connection) ──Step──▶ waiting ──lock is free──▶ holding
//	       ▲                     │                         │
//	       └──── Release, or the connection is lost ───────┘
type Sequencer struct {
	db       *sql.DB
	conn     *sql.Conn
	holds    bool
	sequence *sql.Stmt // sequenceSQL on conn; nil until it is prepared
}

// Step is what one step did.
type Step struct {
	Holds   bool     // this process holds the lock
	Rows    int      // outbox rows that were numbered
	More    bool     // there may be more to number at once
	Tenants []string // whose receipts were numbered; each once
}

// Outbox has the committed receipts that have no number in the order of events yet.
type Outbox struct {
	*shared
	sequencerDB *sql.DB // sequencers, each with a connection that holds the lock
	senderDB    *sql.DB // the sender of webhooks, likewise
}

// Sequencer returns a sequencer. Its first Step tries to take the lock.
func (o *Outbox) Sequencer() *Sequencer { return &Sequencer{db: o.sequencerDB} }

// LockPool returns connections whose session the server ends after SequencerIdle without a
// statement: what holds a session lock on one of them, and hangs, loses it by then.
func (o *Outbox) LockPool() *sql.DB { return o.sequencerDB }

// SenderPool returns the connection of the sender of webhooks, which ends as those of LockPool do.
func (o *Outbox) SenderPool() *sql.DB { return o.senderDB }

const (
	// The advisory lock of the holder: the bytes of "rcrs" and 1, in the key space of two
	// integers.
	trySequenceSQL = `SELECT pg_try_advisory_lock(1919119987, 1)`

	maxSequenceRows = 200

	// SequencerIdle is how long the server keeps the lock of a holder that sends nothing,
	// such as one that hangs; a holder must call Step more often.
	SequencerIdle = 5 * time.Second
)

// sequenceSQL numbers the outbox rows that it sees, which are committed, and deletes them.
// A row that it can't see yet gets a later number, even if its id is lower. The last number
// is read from the log, so that a new holder, or one whose commit had an unknown outcome,
// needs no state. It assigns two numbers: in the order of all receipts, which internal
// readers follow, and in the order of the tenant, which the tenant sees.
const sequenceSQL = `
WITH o AS (
  DELETE FROM recourse.outbox WHERE id IN (SELECT id FROM recourse.outbox ORDER BY id LIMIT $1) RETURNING id, tenant, case_ids, seqs
), before AS (
  SELECT coalesce(max(last), 0) AS last FROM recourse.event_log
), own AS (
  SELECT t.tenant, coalesce((
    SELECT coalesce(l.tenant_last, l.last) FROM recourse.event_log l WHERE l.tenant = t.tenant ORDER BY coalesce(l.tenant_last, l.last) DESC LIMIT 1), 0) AS last
  FROM (SELECT DISTINCT tenant FROM o) t
)
INSERT INTO recourse.event_log (last, tenant_last, tenant, case_ids, seqs)
SELECT before.last + sum(cardinality(o.seqs)) OVER (ORDER BY o.id), own.last + sum(cardinality(o.seqs)) OVER (PARTITION BY o.tenant ORDER BY o.id),
  o.tenant, o.case_ids, o.seqs FROM before, o JOIN own ON own.tenant = o.tenant
RETURNING tenant`

// outboxSQL inserts the receipts of a statement, in receipt, into the outbox for the sequencer:
// one row per tenant. Its id is drawn while the rows of the cases are locked, so that of
// two transitions of one case the later has the higher id.
const outboxSQL = `
  INSERT INTO recourse.outbox (tenant, case_ids, seqs)
  SELECT tenant, array_agg(case_id), array_agg(seq) FROM receipt GROUP BY tenant`

// Step takes the lock if it is free. As the holder it numbers what is committed, up to
// maxSequenceRows outbox rows. After an error it holds no lock.
func (s *Sequencer) Step(ctx context.Context) (Step, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	step, err := s.step(ctx)
	if err != nil {
		return Step{}, errors.Join(pg.Wrap(err), s.Release())
	}
	return step, nil
}

func (s *Sequencer) step(ctx context.Context) (_ Step, err error) {
	if held, err := s.lock(ctx); err != nil || !held {
		return Step{}, err
	}
	if s.sequence == nil {
		if s.sequence, err = s.conn.PrepareContext(ctx, sequenceSQL); err != nil {
			return Step{}, err
		}
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Sequence)
	rows, err := s.sequence.QueryContext(ctx, maxSequenceRows)
	if err != nil {
		return Step{}, err
	}
	defer rows.Close()
	step := Step{Holds: true}
	seen := map[string]bool{}
	for ; rows.Next(); step.Rows++ {
		var tenant string
		if err := rows.Scan(&tenant); err != nil {
			return Step{}, err
		}
		if !seen[tenant] {
			seen[tenant] = true
			step.Tenants = append(step.Tenants, tenant)
		}
	}
	if err := rows.Err(); err != nil {
		return Step{}, err
	}
	failpoint.Hit(failpoint.JournalAfter, failpoint.Sequence)
	step.More = step.Rows == maxSequenceRows
	return step, nil
}

// lock reports whether the sequencer holds the lock, which it tries to take otherwise.
func (s *Sequencer) lock(ctx context.Context) (held bool, err error) {
	switch {
	case s.conn == nil:
		s.conn, s.holds, err = pg.ConnectAndLock(ctx, s.db, trySequenceSQL)
	case !s.holds:
		err = s.conn.QueryRowContext(ctx, trySequenceSQL).Scan(&s.holds)
	}
	return s.holds, err
}

// Release closes the connection, which releases the lock. The next Step connects again.
func (s *Sequencer) Release() error {
	conn := s.conn
	s.conn, s.holds, s.sequence = nil, false, nil
	if conn == nil {
		return nil
	}
	// The pool must not keep a connection that holds the lock.
	err := conn.Raw(func(any) error { return driver.ErrBadConn })
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// SequencerSettings are the settings of connections that hold a session lock. The server ends their sessions
// when they are idle for SequencerIdle, and plans their statements by indexes.
func SequencerSettings() map[string]string {
	return map[string]string{
		"idle_session_timeout": strconv.FormatInt(SequencerIdle.Milliseconds(), 10),
		"plan_cache_mode":      "force_generic_plan", "enable_seqscan": "off", "jit": "off",
	}
}

// Committed receives, at least once, after this process has written receipts.
func (j *Journal) Committed() <-chan struct{} { return j.receiptsWritten }

// SignalCommitted signals Committed; it never blocks.
func (s *shared) SignalCommitted() {
	select {
	case s.receiptsWritten <- struct{}{}:
	default:
	}
}

const drainPause = 10 * time.Millisecond

// Drain returns when everything that was committed before the call is numbered. It
// numbers the rest itself while no other process holds the lock.
func (o *Outbox) Drain(ctx context.Context) (err error) {
	var last int64
	if err := o.readDB.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM recourse.outbox`).Scan(&last); err != nil {
		return pg.Wrap(err)
	}
	s := o.Sequencer()
	defer func() { err = errors.Join(err, s.Release()) }()
	for {
		var waiting bool
		if err := o.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.outbox WHERE id <= $1)`, last).Scan(&waiting); err != nil {
			return pg.Wrap(err)
		}
		if !waiting {
			return nil
		}
		step, err := s.Step(ctx)
		if err != nil {
			return err
		}
		if step.Rows > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainPause):
		}
	}
}
