package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

const lockCaseSQL = `SELECT last_seq FROM recourse.cases WHERE id = $1 AND tenant = $2 FOR NO KEY UPDATE /*skip*/`

// RecordRefusalOnce leaves the receipt that a case refused something, unless one of the same
// content digest was left there since a time: who asks for the same again and again must
// not fill the trail. Of many who ask at once, one writes it. ErrBusy when another
// transaction holds the case: at once, or after a while if the caller may wait.
func (j *Journal) RecordRefusalOnce(ctx context.Context, tenant string, id receipts.CaseID, draft receipts.Draft, since time.Time, wait bool) error {
	draft.Subtype = receipts.Refused
	if recorded, err := refusalRecorded(ctx, j.readDB, id, draft, since); recorded || err != nil {
		return unavailableOrNil(err)
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
		// Asked again under the lock: the statement before may have been another's.
		if recorded, err := refusalRecorded(ctx, tx, id, draft, since); recorded || err != nil {
			return err
		}
		return appendCaseReceipt(ctx, tx, tenant, id, draft)
	}
	if wait {
		return j.inSlowPathTx(ctx, failpoint.SubmissionRefusal, record)
	}
	return j.inTx(ctx, j.batchDB, failpoint.SubmissionRefusal, record)
}

// RefusalRecorded reports whether a refusal of the same content digest was left since a time in a
// case, or, when that is zero, in the tenant's register of refusals.
func (j *Journal) RefusalRecorded(ctx context.Context, tenant string, id receipts.CaseID, draft receipts.Draft, since time.Time) (bool, error) {
	draft.Subtype = receipts.Refused
	if id.IsZero() {
		logCase, found, err := j.OperationLogCase(ctx, tenant, RefusalLog)
		if !found || err != nil {
			return false, err
		}
		id, draft.Subtype = logCase, receipts.AccessRefused
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	recorded, err := refusalRecorded(ctx, j.readDB, id, draft, since)
	return recorded, unavailableOrNil(err)
}

// RecordAccessRefusalOnce is RecordRefusalOnce where no case is named: in the tenant's register of
// refusals.
func (j *Journal) RecordAccessRefusalOnce(ctx context.Context, tenant string, draft receipts.Draft, since time.Time) error {
	draft.Subtype = receipts.AccessRefused
	return j.inSlowPathTx(ctx, failpoint.AccessRefusal, func(ctx context.Context, tx *sql.Tx) error {
		id, err := lockOperationLog(ctx, tx, tenant, RefusalLog)
		if err != nil {
			return err
		}
		if recorded, err := refusalRecorded(ctx, tx, id, draft, since); recorded || err != nil {
			return err
		}
		return appendOperation(ctx, tx, tenant, RefusalLog, draft)
	})
}

func refusalRecorded(ctx context.Context, q querier, id receipts.CaseID, draft receipts.Draft, since time.Time) (recorded bool, err error) {
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
