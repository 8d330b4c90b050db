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

// moved waits until every run of a standing has moved on or ended, and tells how
// many have not when limit is over.
func (a *arena) moved(ctx context.Context, s standing, limit time.Duration) (took time.Duration, stuck int, err error) {
	began := time.Now()
	for {
		err := a.db.QueryRowContext(ctx, stuckSQL, pq.Array(s.runs), pq.Array(s.heads)).Scan(&stuck)
		took = time.Since(began)
		if err == nil && stuck == 0 || took > limit {
			return took, stuck, err
		}
		select {
		case <-ctx.Done():
			return took, stuck, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
