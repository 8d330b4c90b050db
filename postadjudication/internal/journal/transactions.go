package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// InSlowPathTx runs a transaction on a slow path, between its two failpoints. If it returns
// an error nothing was written, except that the answer of the commit may be lost.
func (s *shared) InSlowPathTx(ctx context.Context, point string, do func(context.Context, *sql.Tx) error) (err error) {
	if !s.txPath.Acquire(ctx) {
		return ErrBusy
	}
	defer s.txPath.Release()
	return s.InTx(ctx, s.txPath.DB, point, do)
}

// InTx is InSlowPathTx on another pool. Its statements must not wait for locks.
func (s *shared) InTx(ctx context.Context, db *sql.DB, point string, do func(context.Context, *sql.Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if err := do(ctx, tx); err != nil {
		if pg.IsContention(err) {
			return ErrBusy
		}
		return err
	}
	failpoint.Hit(failpoint.JournalBefore, point)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return pg.Wrap(err)
	}
	s.SignalCommitted()
	return nil
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

const requestCancelSQL = `
UPDATE recourse.runs SET cancel_requested = true, cancel_by = $3, cancel_reason = $4
WHERE id = $1 AND tenant = $2 AND state = 'running' AND NOT cancel_requested`

// RequestCancel marks a running run to be cancelled when its attempt ends, and writes the
// receipt with actor and reason, in one commit. It reports whether it set the mark; false
// if the run no longer runs or is marked already: then nothing is written. The mark is a
// guard of every transition that ends the attempt.
func (j *Journal) RequestCancel(ctx context.Context, run background.Run, draft receipts.Draft) (bool, error) {
	draft.Run, draft.Subtype = run.ID, receipts.CancelRequested
	err := j.InSlowPathTx(ctx, failpoint.CancelRequest, func(ctx context.Context, tx *sql.Tx) error {
		// The receipt comes first: it locks the case, and cases are locked before runs.
		if err := appendCaseReceipt(ctx, tx, run.Tenant, run.Case, draft); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, requestCancelSQL, run.ID.String(), run.Tenant, draft.Actor, draft.Payload.Reason)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); n == 1 || err != nil {
			return err
		}
		return errCancelNotMarked
	})
	if errors.Is(err, errCancelNotMarked) {
		return false, nil
	}
	return err == nil, err
}

// errCancelNotMarked rolls back the receipt of a request that came too late or repeats
// another.
var errCancelNotMarked = errors.New("journal: the run is not running or has a cancel request")
