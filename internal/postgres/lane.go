package postgres

import (
	"context"
	"database/sql"
	"time"
)

// A lane is where lone rows wait for a lock that another transaction holds: a few
// connections whose statements give up after laneWait. Submissions and moves have a
// lane each, so that neither stands in the other's queue.
type lane struct {
	db   *sql.DB
	room chan struct{}
}

const (
	laneWidth = 4
	laneWait  = 2 * time.Second // also the lock_timeout of its connections
)

func newLane(databaseURL string, quiet *silence) (*lane, error) {
	settings := map[string]string{"lock_timeout": "2000"}
	for k, v := range plans {
		settings[k] = v
	}
	db, err := pool(databaseURL, laneWidth, settings, quiet.within(silenceLimit))
	return &lane{db: db, room: make(chan struct{}, laneWidth)}, err
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
