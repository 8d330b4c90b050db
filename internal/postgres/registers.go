package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// OperationLog is a case without runs that a tenant has once.
type OperationLog string

// The registers.
const (
	KeyLog     OperationLog = "keys"
	RefusalLog OperationLog = "refusals"
)

// appendOperation writes a receipt into a register, in the caller's transaction. It holds
// the register's row until that ends.
func appendOperation(ctx context.Context, tx *sql.Tx, tenant string, r OperationLog, draft receipts.Draft) error {
	id, err := lockOperationLog(ctx, tx, tenant, r)
	if err != nil {
		return err
	}
	return appendReceipt(ctx, tx, Case{ID: id, Tenant: tenant, Kind: KindOperations, Subject: string(r)}, draft)
}

// lockOperationLog makes a register unless it is there, and holds its row until the transaction
// ends.
func lockOperationLog(ctx context.Context, tx *sql.Tx, tenant string, r OperationLog) (receipts.CaseID, error) {
	newID, err := uuid.NewV7()
	if err != nil {
		return receipts.CaseID{}, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.registers (tenant, subject, case_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, tenant, string(r), newID); err != nil {
		return receipts.CaseID{}, err
	}
	var id uuid.UUID
	err = tx.QueryRowContext(ctx, `SELECT case_id FROM recourse.registers WHERE tenant = $1 AND subject = $2 FOR NO KEY UPDATE`, tenant, string(r)).Scan(&id)
	return receipts.CaseID(id), err
}

// OperationLogCase is the case of a tenant's register; found is false when nothing was ever
// written there.
func (j *Journal) OperationLogCase(ctx context.Context, tenant string, r OperationLog) (id receipts.CaseID, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var caseID uuid.UUID
	err = j.readDB.QueryRowContext(ctx, `SELECT case_id FROM recourse.registers WHERE tenant = $1 AND subject = $2`, tenant, string(r)).Scan(&caseID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, false, nil
	case err != nil:
		return id, false, unavailable(err)
	}
	return receipts.CaseID(caseID), true, nil
}

// appendCaseReceiptSQL adds a receipt to a case in which nothing else changes.
const appendCaseReceiptSQL = `
WITH c AS (
  UPDATE recourse.cases SET last_seq = $2::bigint, last_link = $10::bytea WHERE id = $1::uuid RETURNING id
), i AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT $1::uuid, $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::timestamptz, $9::text, $10::bytea FROM c RETURNING case_id, seq, tenant
)` + outboxSQL

// RecordRefusal leaves the receipt that somebody was refused something: in the case
// named, if the tenant has it and it has runs, else in the tenant's register of refusals.
func (j *Journal) RecordRefusal(ctx context.Context, tenant string, id receipts.CaseID, run receipts.RunID, draft receipts.Draft) error {
	draft.Subtype, draft.Run = receipts.Refused, run
	return j.inSlowPathTx(ctx, failpoint.AccessRefusal, func(ctx context.Context, tx *sql.Tx) error {
		err := appendCaseReceipt(ctx, tx, tenant, id, draft)
		if errors.Is(err, sql.ErrNoRows) {
			draft.Subtype, draft.Run = receipts.AccessRefused, receipts.RunID{}
			err = appendOperation(ctx, tx, tenant, RefusalLog, draft)
		}
		return err
	})
}

// appendCaseReceipt is sql.ErrNoRows when the tenant has no such case, or it is one without runs:
// there the receipts are what its thing has become, and are counted.
func appendCaseReceipt(ctx context.Context, tx *sql.Tx, tenant string, id receipts.CaseID, draft receipts.Draft) error {
	head := receipts.Head{}
	var link []byte
	err := tx.QueryRowContext(ctx, `SELECT last_seq, last_link FROM recourse.cases WHERE id = $1 AND tenant = $2 AND kind <> 'operations' FOR NO KEY UPDATE`, id.String(), tenant).Scan(&head.Seq, &link)
	if err != nil {
		return err
	}
	copy(head.Link[:], link)
	chained, _, err := receipts.Chain(id, tenant, head, draft)
	if err != nil {
		return fmt.Errorf("postgres: seal receipts: %w", err)
	}
	r := chained[0]
	_, err = tx.ExecContext(ctx, appendCaseReceiptSQL, id.String(), r.Seq, nullableRunID(r.Run), r.Tenant, string(r.Source), string(r.Subtype), r.Actor, r.At, string(r.Body), r.Link[:])
	return err
}

// inSlowPathTx runs a transaction on the lane of lone moves, between its two failpoints.
// Nothing of it is written when it returns an error, unless the commit's own answer
// was lost.
func (j *Journal) inSlowPathTx(ctx context.Context, point string, do func(context.Context, *sql.Tx) error) (err error) {
	if !j.txPath.acquire(ctx) {
		return ErrBusy
	}
	defer j.txPath.release()
	return j.inTx(ctx, j.txPath.db, point, do)
}

// inTx is inSlowPathTx on another pool, whose statements must not wait.
func (j *Journal) inTx(ctx context.Context, db *sql.DB, point string, do func(context.Context, *sql.Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	if err := do(ctx, tx); err != nil {
		if isContention(err) {
			return ErrBusy
		}
		return err
	}
	failpoint.Hit(failpoint.JournalBefore, point)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return unavailable(err)
	}
	j.signalCommitted()
	return nil
}
