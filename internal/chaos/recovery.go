package main

import (
	"context"
	"time"

	"github.com/lib/pq"
)

// standing is where live runs stood at one moment.
type standing struct {
	runs  []string
	heads []int64
}

// standing leaves out the runs that nobody could read: who can't read one looks at it
// again after a minute.
func (a *arena) standing(ctx context.Context) (standing, error) {
	var s standing
	rows, err := a.db.QueryContext(ctx, `SELECT r.id, c.last_seq FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
		WHERE r.live AND NOT r.id = ANY($1::uuid[])`, pq.Array(a.unread))
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var run string
		var head int64
		if err := rows.Scan(&run, &head); err != nil {
			return s, err
		}
		s.runs, s.heads = append(s.runs, run), append(s.heads, head)
	}
	return s, rows.Err()
}

const stuckSQL = `SELECT count(*) FROM unnest($1::uuid[], $2::bigint[]) AS t(id, head) JOIN recourse.runs r ON r.id = t.id JOIN recourse.cases c ON c.id = r.case_id
	WHERE r.live AND c.last_seq = t.head`

// perRun is how long each of many runs may take to be moved on, one after the other.
const perRun = 200 * time.Millisecond

// moved waits until every run of a standing has moved on or ended. It gives up when limit is
// over since the last of them did, or longer than they all may take, and tells how many have
// not: the pace is the machine's, and what stands still while others go on is found all the same.
func (a *arena) moved(ctx context.Context, s standing, limit time.Duration) (stuck int, err error) {
	began, least := time.Now(), len(s.runs)+1
	last, most := began, 2*limit+time.Duration(len(s.runs))*perRun
	for {
		err := a.db.QueryRowContext(ctx, stuckSQL, pq.Array(s.runs), pq.Array(s.heads)).Scan(&stuck)
		if err == nil && stuck < least {
			last, least = time.Now(), stuck
		}
		if err == nil && stuck == 0 || time.Since(last) > limit || time.Since(began) > most {
			return stuck, err
		}
		select {
		case <-ctx.Done():
			return stuck, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
