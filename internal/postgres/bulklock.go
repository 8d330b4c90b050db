package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
)

// BulkLock is held by the one process that works on a plan. It goes with its
// connection: a process that dies or is cut off makes way at once, and one that says
// nothing for SequencerIdle does too. It saves work, and is no guard: what is done to
// an item guards itself. It is for one goroutine.
type BulkLock struct {
	conn *sql.Conn
	id   uuid.UUID
}

// The locks of plans, by their numbers: the bytes of "rcrt".
const tryBulkLockSQL = `SELECT pg_try_advisory_lock(1919119988, $1)`

// LockBulkPlan takes the lock of a plan; nil when another process has it.
func (j *Journal) LockBulkPlan(ctx context.Context, b BulkPlan) (*BulkLock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockCheckTimeout)
	defer cancel()
	conn, err := j.sequencerDB.Conn(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	var acquired bool
	if err := conn.QueryRowContext(ctx, tryBulkLockSQL, b.Number).Scan(&acquired); err != nil || !acquired {
		return nil, errors.Join(unavailableOrNil(err), releaseLocks(ctx, conn))
	}
	return &BulkLock{conn, b.ID}, nil
}

// State tells where the plan stands, over the connection that holds the lock, and so
// that it is held. It must be asked more often than every SequencerIdle.
func (l *BulkLock) State(ctx context.Context) (s BulkState, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockCheckTimeout)
	defer cancel()
	err = l.conn.QueryRowContext(ctx, `SELECT state FROM recourse.bulks WHERE id = $1`, l.id).Scan(&s)
	return s, unavailableOrNil(err)
}

// Release lets the plan go.
func (l *BulkLock) Release(ctx context.Context) error { return releaseLocks(ctx, l.conn) }
