package postgres

import (
	"context"

	"github.com/google/uuid"
)

const bulkForksSQL = `SELECT CASE WHEN r.live THEN 'live' ELSE r.state END, count(*) FROM recourse.bulk_items i JOIN recourse.runs r ON r.id = i.new_run
WHERE i.bulk_id = $1 GROUP BY 1`

// CountBulkForks counts the runs that a plan has made by the state that they ended in; those that
// have not ended are "live".
func (j *Journal) CountBulkForks(ctx context.Context, id uuid.UUID) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := j.readDB.QueryContext(ctx, bulkForksSQL, id)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	forks := map[string]int64{}
	for rows.Next() {
		var state string
		var n int64
		if err := rows.Scan(&state, &n); err != nil {
			return nil, unavailable(err)
		}
		forks[state] = n
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(err)
	}
	return forks, nil
}
