package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// A lane is a few connections for lone rows, whose statements give up a lock that
// another transaction holds after laneWait. There are three, so that none stands in the
// queue of another: submissions that wait for a foreign transaction, moves that do, and
// transactions that write more than a move, which wait for no case.
type lane struct {
	db       *sql.DB
	room     chan struct{}
	turns    turns
	patience time.Duration // how long the first of a name may wait before the others are told that it is busy
}

const (
	laneWidth = 4
	laneWait  = 2 * time.Second // also the lock_timeout of its connections

	// submitPatience is longer than the statements of other processes take, which lock an
	// escrow in passing; who holds it for longer is a caller that may hold it for any time.
	submitPatience = laneWait / 2
	movePatience   = 2 * laneWait
)

func newLane(databaseURL, purpose string, quiet *silence, patience time.Duration) (*lane, error) {
	settings := map[string]string{"lock_timeout": "2000"}
	for k, v := range plans {
		settings[k] = v
	}
	db, err := pool(databaseURL, connections{purpose: purpose, most: laneWidth, settings: settings, dialer: quiet.within(silenceLimit)})
	return &lane{db: db, room: make(chan struct{}, laneWidth), patience: patience}, err
}

// enter waits for room as long as a statement would wait for its lock. It reports
// false when there was none.
func (l *lane) enter(ctx context.Context) bool {
	timer := time.NewTimer(laneWait)
	defer timer.Stop()
	select {
	case l.room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}

func (l *lane) leave() { <-l.room }

// roomPause is how long a row that finds no room to wait in pauses before it is tried
// again without waiting.
const roomPause = 20 * time.Millisecond

// behind writes a row that another transaction kept out: behind whatever is locked by a
// name. One row of a name waits for the lock, by the statement wait; those that come
// meanwhile are ErrBusy when it does not get through soon, and are tried again when it
// does. Nobody waits for room in the lane: without room a row is tried again as it was,
// so that whoever waits for an open transaction keeps only that one's rows waiting.
//
// lost means to read again, to decide again and to come again.
func (l *lane) behind(ctx context.Context, name string, try, wait func() (verdict, error)) (v verdict, err error) {
	turn, first := l.turns.take(name)
	if !first {
		if !turn.await(ctx, l.patience) {
			return lost, ErrBusy
		}
		return try()
	}
	defer func() { l.turns.end(turn, !errors.Is(err, ErrBusy)) }()
	select {
	case l.room <- struct{}{}:
		defer l.leave()
		return wait()
	default:
	}
	select {
	case <-ctx.Done():
		return lost, ErrBusy
	case <-time.After(roomPause):
		return try()
	}
}
