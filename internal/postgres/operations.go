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
	if err := j.reads.SelectContext(ctx, &ids, `SELECT id FROM recourse.cases WHERE tenant = $1 AND kind = 'operations' ORDER BY id`, tenant); err != nil {
		return nil, unavailable(err)
	}
	out := make([]receipts.CaseID, len(ids))
	for i, id := range ids {
		out[i] = receipts.CaseID(id)
	}
	return out, nil
}

// OperationsAtOnce reads the head and the receipts of a case without runs as they
// are at one moment. There is none when found is false.
func (j *Journal) OperationsAtOnce(ctx context.Context, tenant string, id receipts.CaseID) (head receipts.Head, trail []receipts.Receipt, found bool, err error) {
	tx, err := j.reads.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return head, nil, false, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	var link []byte
	err = tx.QueryRowContext(ctx, `SELECT last_seq, last_link FROM recourse.cases WHERE tenant = $1 AND id = $2 AND kind = 'operations'`, tenant, id.String()).Scan(&head.Seq, &link)
	if errors.Is(err, sql.ErrNoRows) {
		return head, nil, false, nil
	}
	if err != nil {
		return head, nil, false, unavailable(err)
	}
	copy(head.Link[:], link)
	var rows []receiptRow
	if err := tx.SelectContext(ctx, &rows, `SELECT `+receiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 ORDER BY seq`, tenant, id.String()); err != nil {
		return head, nil, false, unavailable(err)
	}
	for i := range rows {
		trail = append(trail, rows[i].receipt())
	}
	return head, trail, true, nil
}
