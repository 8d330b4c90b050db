package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// OperationLogs finds the trails of operations that belong to no run, such as those on rules and keys. It
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

const lockCaseSQL = `SELECT last_seq FROM recourse.cases WHERE id = $1 AND tenant = $2 FOR NO KEY UPDATE /*skip*/`

// RecordRefusalOnce writes a receipt that a case refused a request, unless since a time the
// case has one with the same content digest: repeated requests must not fill the trail. Of
// concurrent calls one writes it. It returns ErrBusy if another transaction holds the case:
// at once, or after LockTimeout if wait is set.
func (o *OperationLogs) RecordRefusalOnce(ctx context.Context, tenant string, id receipts.CaseID, draft receipts.Draft, since time.Time, wait bool) error {
	draft.Subtype = receipts.Refused
	if recorded, err := refusalRecorded(ctx, o.readDB, id, draft, since); recorded || err != nil {
		return pg.Wrap(err)
	}
	record := func(ctx context.Context, tx *sql.Tx) error {
		lock := withSkipLocked(lockCaseSQL)
		if wait {
			lock = withLockWait(lockCaseSQL)
		}
		var seq int64
		switch err := tx.QueryRowContext(ctx, lock, id.String(), tenant).Scan(&seq); {
		case errors.Is(err, sql.ErrNoRows):
			return ErrBusy // cases are never removed
		case err != nil:
			return err
		}
		// Checked again under the lock: another transaction may have written it since.
		if recorded, err := refusalRecorded(ctx, tx, id, draft, since); recorded || err != nil {
			return err
		}
		return appendCaseReceipt(ctx, tx, tenant, id, draft)
	}
	if wait {
		return o.InSlowPathTx(ctx, failpoint.SubmissionRefusal, record)
	}
	return o.InTx(ctx, o.batchDB, failpoint.SubmissionRefusal, record)
}

// RefusalRecorded reports whether a refusal with the same content digest was recorded since
// a time, in the case or, for the zero id, in the tenant's refusal log.
func (o *OperationLogs) RefusalRecorded(ctx context.Context, tenant string, id receipts.CaseID, draft receipts.Draft, since time.Time) (bool, error) {
	draft.Subtype = receipts.Refused
	if id.IsZero() {
		logCase, found, err := o.Log(ctx, tenant, RefusalLog)
		if !found || err != nil {
			return false, err
		}
		id, draft.Subtype = logCase, receipts.AccessRefused
	}
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	recorded, err := refusalRecorded(ctx, o.readDB, id, draft, since)
	return recorded, pg.Wrap(err)
}

// RecordAccessRefusalOnce is RecordRefusalOnce for requests that name no case: it writes to
// the tenant's refusal log.
func (o *OperationLogs) RecordAccessRefusalOnce(ctx context.Context, tenant string, draft receipts.Draft, since time.Time) error {
	draft.Subtype = receipts.AccessRefused
	return o.InSlowPathTx(ctx, failpoint.AccessRefusal, func(ctx context.Context, tx *sql.Tx) error {
		id, err := lockOperationLog(ctx, tx, tenant, RefusalLog)
		if err != nil {
			return err
		}
		if recorded, err := refusalRecorded(ctx, tx, id, draft, since); recorded || err != nil {
			return err
		}
		return AppendOperation(ctx, tx, tenant, RefusalLog, draft)
	})
}

func refusalRecorded(ctx context.Context, q pg.Querier, id receipts.CaseID, draft receipts.Draft, since time.Time) (recorded bool, err error) {
	rows, err := q.QueryContext(ctx, `SELECT EXISTS (SELECT FROM recourse.receipts WHERE case_id = $1 AND subtype = $2 AND at >= $3
		AND body::json -> 'payload' ->> 'content_digest' = $4)`, id.String(), string(draft.Subtype), since, draft.Payload.ContentDigest)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&recorded); err != nil {
			return false, err
		}
	}
	return recorded, rows.Err()
}

// RecordRefusal writes a receipt that somebody was refused something: into the given case,
// if the tenant has it and it has runs, else into the tenant's refusal log.
func (o *OperationLogs) RecordRefusal(ctx context.Context, tenant string, id receipts.CaseID, run receipts.RunID, draft receipts.Draft) error {
	draft.Subtype, draft.Run = receipts.Refused, run
	return o.InSlowPathTx(ctx, failpoint.AccessRefusal, func(ctx context.Context, tx *sql.Tx) error {
		err := appendCaseReceipt(ctx, tx, tenant, id, draft)
		if errors.Is(err, sql.ErrNoRows) {
			draft.Subtype, draft.Run = receipts.AccessRefused, receipts.RunID{}
			err = AppendOperation(ctx, tx, tenant, RefusalLog, draft)
		}
		return err
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

// appendReceipt writes a receipt into a case without runs, by the statements that write all
// receipts. It opens the case with the first receipt. The caller holds the row that the
// case is about, so that nobody else writes to the case meanwhile.
func appendReceipt(ctx context.Context, tx *sql.Tx, opsCase Case, draft receipts.Draft) error {
	before := opsCase
	var link []byte
	err := tx.QueryRowContext(ctx, `SELECT last_seq, last_link FROM recourse.cases WHERE id = $1 FOR NO KEY UPDATE`, opsCase.ID.String()).Scan(&before.Head.Seq, &link)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	copy(before.Head.Link[:], link)
	ch, err := chainForCaller(ctx, &Change{Before: &Snapshot{Case: before}, After: &Snapshot{Case: opsCase}, Drafts: []receipts.Draft{draft}})
	if err != nil {
		return err
	}
	if ch.isOpening() {
		opened, err := applyWideOpen(ctx, tx, withSubjectLock(wideOpenSQL), ch)
		if err == nil && opened.result != applied {
			err = fmt.Errorf("the case of %s exists, but its row does not", opsCase.Subject)
		}
		return err
	}
	res, err := applyWideTransition(ctx, tx, withLockWait(wideTransitionSQL), ch)
	if err == nil && res != applied {
		err = fmt.Errorf("the case of %s was changed by another transaction", opsCase.Subject)
	}
	return err
}

// appendCaseReceiptSQL adds a receipt to a case in which nothing else changes.
const appendCaseReceiptSQL = `
WITH case_write AS (
  UPDATE recourse.cases SET last_seq = $2::bigint, last_link = $10::bytea WHERE id = $1::uuid RETURNING id
), receipt AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT $1::uuid, $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::timestamptz, $9::text, $10::bytea FROM case_write RETURNING case_id, seq, tenant
)` + outboxSQL

// appendCaseReceipt adds a receipt to a case with runs. It returns sql.ErrNoRows if the
// tenant has no such case, or if the case has no runs: there each receipt is a change of
// what the case is about.
func appendCaseReceipt(ctx context.Context, tx *sql.Tx, tenant string, id receipts.CaseID, draft receipts.Draft) error {
	head := receipts.Head{}
	var link []byte
	err := tx.QueryRowContext(ctx, `SELECT last_seq, last_link FROM recourse.cases WHERE id = $1 AND tenant = $2 AND kind <> 'operations' FOR NO KEY UPDATE`, id.String(), tenant).Scan(&head.Seq, &link)
	if err != nil {
		return err
	}
	copy(head.Link[:], link)
	drafts := []receipts.Draft{draft}
	markSelfDeclared(ctx, drafts)
	chained, _, err := receipts.Chain(id, tenant, head, drafts...)
	if err != nil {
		return fmt.Errorf("journal: chain receipts: %w", err)
	}
	r := chained[0]
	_, err = tx.ExecContext(ctx, appendCaseReceiptSQL, id.String(), r.Seq, nullableRunID(r.Run), r.Tenant, string(r.Source), string(r.Subtype), r.Actor, r.At, string(r.Body), r.Link[:])
	return err
}
