package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

// OperationsCases lists the cases of a tenant that have receipts but no run.
func (j *Journal) OperationsCases(ctx context.Context, tenant string) ([]receipts.CaseID, error) {
	var ids []uuid.UUID
	if err := j.readDB.SelectContext(ctx, &ids, `SELECT id FROM recourse.cases WHERE tenant = $1 AND kind = 'operations' ORDER BY id`, tenant); err != nil {
		return nil, unavailable(err)
	}
	out := make([]receipts.CaseID, len(ids))
	for i, id := range ids {
		out[i] = receipts.CaseID(id)
	}
	return out, nil
}

// OperationsCase is the case of a tenant without runs that has a subject; found is false when
// nothing was ever written there.
func (j *Journal) OperationsCase(ctx context.Context, tenant, subject string) (id receipts.CaseID, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var caseID uuid.UUID
	err = j.readDB.QueryRowContext(ctx, `SELECT id FROM recourse.cases WHERE tenant = $1 AND kind = 'operations' AND subject = $2`, tenant, subject).Scan(&caseID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, false, nil
	case err != nil:
		return id, false, unavailable(err)
	}
	return receipts.CaseID(caseID), true, nil
}
