package postgres

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

const lastAttemptSQL = `SELECT max(at) FROM recourse.receipts
WHERE tenant = $1 AND case_id = $2 AND subtype IN ('attempt-started', 'attempt-interrupted', 'retry-scheduled', 'dead-lettered', 'answered-late')`

// LastAttemptAt is when an attempt of a case was last started or ended, as its receipts
// tell; the zero time when none ever was.
func (j *Journal) LastAttemptAt(ctx context.Context, tenant string, id receipts.CaseID) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var at *time.Time
	if err := j.readDB.QueryRowContext(ctx, lastAttemptSQL, tenant, id.String()).Scan(&at); err != nil {
		return time.Time{}, unavailable(err)
	}
	if at == nil {
		return time.Time{}, nil
	}
	return *at, nil
}
