package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

const askCancelSQL = `
UPDATE recourse.runs SET cancel_asked = true, cancel_by = $3, cancel_reason = $4
WHERE id = $1 AND tenant = $2 AND state = 'running' AND NOT cancel_asked`

// AskCancel marks a running run as one to be cancelled when its attempt ends, with the
// receipt of who asked for it. It reports whether the mark is new; it is not when the run no
// longer runs or when somebody asked before, and nothing is written then. The mark is a
// guard of every move that ends the attempt.
func (j *Journal) AskCancel(ctx context.Context, run background.Run, draft receipts.Draft) (bool, error) {
	draft.Subtype, draft.Run = receipts.CancelRequested, run.ID
	err := j.inLane(ctx, failpoint.Ask, func(ctx context.Context, tx *sql.Tx) error {
		if err := note(ctx, tx, run.Tenant, run.Case, draft); err != nil { // locks the case before the run
			return err
		}
		n, err := affected(tx.ExecContext(ctx, askCancelSQL, run.ID.String(), run.Tenant, draft.Actor, draft.Payload.Reason))
		if err == nil && n == 0 {
			err = ErrNoChange
		}
		return err
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNoChange):
		return false, nil
	case errors.Is(err, ErrBusy):
		return false, err
	}
	return false, unavailable(err)
}
