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
const tryBulkSQL = `SELECT pg_try_advisory_lock(1919119988, $1)`

// LockBulk takes the lock of a plan; nil when another process has it.
func (j *Journal) LockBulk(ctx context.Context, b Bulk) (*BulkLock, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkBeat)
	defer cancel()
	conn, err := j.sequence.Conn(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	var alone bool
	if err := conn.QueryRowContext(ctx, tryBulkSQL, b.Number).Scan(&alone); err != nil || !alone {
		return nil, errors.Join(maybeUnavailable(err), letGo(ctx, conn))
	}
	return &BulkLock{conn, b.ID}, nil
}

// State tells where the plan stands, over the connection that holds the lock, and so
// that it is held. It must be asked more often than every SequencerIdle.
func (l *BulkLock) State(ctx context.Context) (s BulkState, err error) {
	ctx, cancel := context.WithTimeout(ctx, bulkBeat)
	defer cancel()
	err = l.conn.QueryRowContext(ctx, `SELECT state FROM recourse.bulks WHERE id = $1`, l.id).Scan(&s)
	return s, maybeUnavailable(err)
}

// Release lets the plan go.
func (l *BulkLock) Release(ctx context.Context) error { return letGo(ctx, l.conn) }
