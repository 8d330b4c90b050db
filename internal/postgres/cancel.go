package postgres

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

const askCancelSQL = `
UPDATE recourse.runs SET cancel_asked = true, cancel_by = $3, cancel_reason = $4
WHERE id = $1 AND tenant = $2 AND state = 'running' AND NOT cancel_asked`

// AskCancel marks a running run as one to be cancelled when its attempt ends. It
// reports whether the mark is new; it is not when the run no longer runs or when
// somebody asked before. The mark is a guard of every move that ends the attempt.
func (j *Journal) AskCancel(ctx context.Context, tenant string, id background.RunID, actor, reason string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	res, err := write(ctx, j.hot, failpoint.Ask, askCancelSQL, id.String(), tenant, actor, reason)
	if err != nil {
		return false, unavailable(err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
