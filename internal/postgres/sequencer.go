package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// Sequencer gives committed receipts their places in the one order of events. Any
// number of processes may have one; whoever holds the lock numbers, and the lock
// goes with the connection, so that a holder that dies, freezes or is cut off makes
// way. It is for one goroutine.
//
//	(no connection) ──Step──▶ waiting ──lock is free──▶ holding
//	       ▲                     │                         │
//	       └──── Release, or the connection is lost ───────┘
type Sequencer struct {
	db    *sql.DB
	conn  *sql.Conn
	holds bool
}

// Step is what one step did.
type Step struct {
	Holds   bool     // this process numbers, no other does
	Rows    int      // outbox rows that were taken
	More    bool     // there may be more that can be taken at once
	Tenants []string // whose receipts were numbered; each once
}

// Sequencer makes one. It reaches for the lock at its first Step.
func (j *Journal) Sequencer() *Sequencer { return &Sequencer{db: j.sequencerDB} }

const (
	// The lock that the holder keeps: the bytes of "rcrs" and 1, in the key space
	// of two integers, which nothing else of ours uses.
	trySequenceSQL = `SELECT pg_try_advisory_lock(1919119987, 1)`

	maxSequenceRows = 200

	// SequencerIdle is how long the server keeps the lock of a holder that says
	// nothing, such as one that is frozen; a holder must step more often.
	SequencerIdle = 5 * time.Second
)

// sequenceSQL numbers what it sees, which is committed, and removes it from the
// outbox. What it can't see yet comes later, and gets a later place: also where a
// lower id is committed after a higher one. The last number given is read from the
// log, so that a new holder, or one whose commit was ambiguous, needs to know
// nothing. It numbers twice: in the order of all, by which we follow, and in that of the
// tenant, which is what the tenant sees.
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

// Step takes the lock if it is free, and as the holder numbers what is committed,
// up to a few hundred statements' worth. After an error nothing is held.
func (s *Sequencer) Step(ctx context.Context) (Step, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	step, err := s.step(ctx)
	if err != nil {
		return Step{}, errors.Join(unavailable(err), s.Release())
	}
	return step, nil
}

func (s *Sequencer) step(ctx context.Context) (Step, error) {
	if s.conn == nil {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return Step{}, err
		}
		s.conn = conn
	}
	if !s.holds {
		if err := s.conn.QueryRowContext(ctx, trySequenceSQL).Scan(&s.holds); err != nil || !s.holds {
			return Step{}, err
		}
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Sequence)
	rows, err := s.conn.QueryContext(ctx, sequenceSQL, maxSequenceRows)
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
	failpoint.Hit(failpoint.JournalAfter, failpoint.Sequence)
	step.More = step.Rows == maxSequenceRows
	return step, rows.Err()
}

// Release ends the connection and with it the lock. The next Step begins anew.
func (s *Sequencer) Release() error {
	conn := s.conn
	s.conn, s.holds = nil, false
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

// sequencerSettings make the server end a session that stands still.
func sequencerSettings() map[string]string {
	return map[string]string{
		"idle_session_timeout": strconv.FormatInt(SequencerIdle.Milliseconds(), 10),
		"plan_cache_mode":      "force_generic_plan", "enable_seqscan": "off", "jit": "off",
	}
}

// outboxSQL leaves word of the receipts that a statement inserted, in i, for the
// sequencer: one row a tenant. Its id is drawn while the rows of the cases are
// locked, so that of two moves of one case the later has the higher id.
const outboxSQL = `
  INSERT INTO recourse.outbox (tenant, case_ids, seqs)
  SELECT i.tenant, array_agg(i.case_id), array_agg(i.seq) FROM i GROUP BY i.tenant`

// Committed is signalled, at least once, after this process has written receipts.
func (j *Journal) Committed() <-chan struct{} { return j.committed }

// signalCommitted signals Committed; it never waits.
func (j *Journal) signalCommitted() {
	select {
	case j.committed <- struct{}{}:
	default:
	}
}

const drainPause = 10 * time.Millisecond

// DrainOutbox returns when everything that was committed before the call has its place
// in the order of events. It numbers what is left itself as long as no other
// process holds the sequence.
func (j *Journal) DrainOutbox(ctx context.Context) (err error) {
	var last int64
	if err := j.readDB.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM recourse.outbox`).Scan(&last); err != nil {
		return unavailable(err)
	}
	s := j.Sequencer()
	defer func() { err = errors.Join(err, s.Release()) }()
	for {
		var waiting bool
		if err := j.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.outbox WHERE id <= $1)`, last).Scan(&waiting); err != nil {
			return unavailable(err)
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
