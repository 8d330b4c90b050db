package postgres

import (
	"context"
	"database/sql"
	"time"
)

// matchPage is how many letters are looked at together. They are read whole, so that
// it bounds what a plan keeps in memory.
const matchPage = 2_000

// takeMatching takes in those of the next letters that meet the plan's condition; more tells
// whether others may follow.
func (p *planBuilder) takeMatching(ctx context.Context, tx *sql.Tx, search *searchPlan, scope BulkScope) (more bool, err error) {
	positions, err := search.find(ctx, tx, p.last, int(scope.BatchSize))
	if err != nil || len(positions) == 0 {
		return false, err
	}
	letters, err := readLetters(ctx, tx, positions)
	if err != nil {
		return false, err
	}
	selected := newColumns(2, 0)
	for _, l := range letters {
		if scope.Limit > 0 && p.items+int64(selected.rows) == scope.Limit {
			break
		}
		matches, err := scope.Matches(ctx, l)
		if err != nil {
			return false, err
		}
		if matches {
			selected.id(l.Run.ID)
			selected.time(time.UnixMicro(l.Position.Value).UTC())
		}
	}
	if selected.rows > 0 {
		if _, err := p.insertLetters(ctx, tx, `SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS u(run_id, value)`, selected.args()); err != nil {
			return false, err
		}
	}
	p.last = positions[len(positions)-1]
	return int64(len(positions)) == scope.BatchSize, nil
}
