package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// OperationLogs finds the trails of what was done to no case with runs, such as rules and keys. It
// writes the receipts of refusals, into the trail of the case that refused if there is one.
type OperationLogs struct {
	*shared
}

// Case returns a tenant's case without runs that has a subject; found is false if
// nothing was ever written there.
func (o *OperationLogs) Case(ctx context.Context, tenant, subject string) (id receipts.CaseID, found bool, err error) {
	return o.findCase(ctx, `SELECT id FROM recourse.cases WHERE tenant = $1 AND kind = 'operations' AND subject = $2`, tenant, subject)
}

// Log returns the case of a tenant's operation log; found is false if nothing was ever written
// there.
func (o *OperationLogs) Log(ctx context.Context, tenant string, log OperationLog) (id receipts.CaseID, found bool, err error) {
	return o.findCase(ctx, `SELECT case_id FROM recourse.operation_logs WHERE tenant = $1 AND subject = $2`, tenant, string(log))
}

func (o *OperationLogs) findCase(ctx context.Context, query, tenant, subject string) (id receipts.CaseID, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var caseID uuid.UUID
	err = o.readDB.QueryRowContext(ctx, query, tenant, subject).Scan(&caseID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, false, nil
	case err != nil:
		return id, false, pg.Wrap(err)
	}
	return receipts.CaseID(caseID), true, nil
}

// OperationLog is the subject of a case without runs that a tenant has once.
type OperationLog string

// The operation logs.
const (
	KeyLog     OperationLog = stored.KeyLog
	RefusalLog OperationLog = stored.RefusalLog
)

// IndexLog has the receipts of what was done to a tenant's list of dead letters as a whole.
const IndexLog OperationLog = stored.IndexLog

// RecordPruned writes the receipt that a round of retention pruned letters of a tenant.
func (o *OperationLogs) RecordPruned(ctx context.Context, tenant string, draft receipts.Draft) error {
	draft.Subtype = receipts.LettersPruned
	return o.InSlowPathTx(ctx, failpoint.PrunedLetters, func(ctx context.Context, tx *sql.Tx) error {
		return AppendOperation(ctx, tx, tenant, IndexLog, draft)
	})
}

// AppendOperation writes a receipt into an operation log, in the caller's transaction. It
// locks the log's row until that ends.
func AppendOperation(ctx context.Context, tx *sql.Tx, tenant string, log OperationLog, draft receipts.Draft) error {
	id, err := lockOperationLog(ctx, tx, tenant, log)
	if err != nil {
		return err
	}
	return appendReceipt(ctx, tx, Case{ID: id, Tenant: tenant, Kind: KindOperations, Subject: string(log)}, draft)
}

// lockOperationLog creates an operation log if there is none, and locks its row until the
// transaction ends.
func lockOperationLog(ctx context.Context, tx *sql.Tx, tenant string, log OperationLog) (receipts.CaseID, error) {
	newID, err := uuid.NewV7()
	if err != nil {
		return receipts.CaseID{}, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.operation_logs (tenant, subject, case_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, tenant, string(log), newID); err != nil {
		return receipts.CaseID{}, err
	}
	var id uuid.UUID
	err = tx.QueryRowContext(ctx, `SELECT case_id FROM recourse.operation_logs WHERE tenant = $1 AND subject = $2 FOR NO KEY UPDATE`, tenant, string(log)).Scan(&id)
	return receipts.CaseID(id), err
}
