package postgres

import (
	"context"
	"database/sql"
	"time"
)

// meetingPage is how many letters are looked at together. They are read whole, so that
// it bounds what a plan keeps in memory.
const meetingPage = 2_000

// meeting takes in those of the next letters that meet the plan's condition; more tells
// whether others may follow.
func (p *planning) meeting(ctx context.Context, tx *sql.Tx, search *letterPlan, of BulkScope) (more bool, err error) {
	places, err := search.places(ctx, tx, p.last, int(of.Chunk))
	if err != nil || len(places) == 0 {
		return false, err
	}
	letters, err := readLetters(ctx, tx, places)
	if err != nil {
		return false, err
	}
	meant := newColumns(2, 0)
	for _, l := range letters {
		if of.Limit > 0 && p.items+int64(meant.rows) == of.Limit {
			break
		}
		meets, err := of.Meets(ctx, l)
		if err != nil {
			return false, err
		}
		if meets {
			meant.id(l.Run.ID)
			meant.time(time.UnixMicro(l.Place.Value).UTC())
		}
	}
	if meant.rows > 0 {
		if _, err := p.take(ctx, tx, `SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS u(run_id, value)`, meant.args()); err != nil {
			return false, err
		}
	}
	p.last = places[len(places)-1]
	return int64(len(places)) == of.Chunk, nil
}
