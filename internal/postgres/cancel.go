package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

const requestCancelSQL = `
UPDATE recourse.runs SET cancel_asked = true, cancel_by = $3, cancel_reason = $4
WHERE id = $1 AND tenant = $2 AND state = 'running' AND NOT cancel_asked`

// RequestCancel marks a running run as one to be cancelled when its attempt ends, with the
// receipt of who asked and why, in one commit. It reports whether the mark is new; it is
// not, and nothing is written, when the run no longer runs or when somebody asked before.
// The mark is a guard of every move that ends the attempt.
func (j *Journal) RequestCancel(ctx context.Context, run background.Run, draft receipts.Draft) (bool, error) {
	draft.Run, draft.Subtype = run.ID, receipts.CancelRequested
	err := j.inSlowPathTx(ctx, failpoint.CancelRequest, func(ctx context.Context, tx *sql.Tx) error {
		// The receipt first: it locks the case, which comes before its runs.
		if err := appendCaseReceipt(ctx, tx, run.Tenant, run.Case, draft); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, requestCancelSQL, run.ID.String(), run.Tenant, draft.Actor, draft.Payload.Reason)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); n == 1 || err != nil {
			return err
		}
		return errCancelNotMarked
	})
	if errors.Is(err, errCancelNotMarked) {
		return false, nil
	}
	return err == nil, err
}

// errCancelNotMarked takes back the receipt of a request that came too late, or second.
var errCancelNotMarked = errors.New("postgres: no attempt of the run can be asked to be the last")
