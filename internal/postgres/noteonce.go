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

// NoteRefusalOnce leaves the receipt that a case refused something, unless one of the same
// content digest was left there since a time: who asks for the same again and again must
// not fill the trail. Of many who ask at once, one writes it. ErrBusy when another
// transaction holds the case: at once, or after a while if the caller may wait.
func (j *Journal) NoteRefusalOnce(ctx context.Context, tenant string, id receipts.CaseID, draft receipts.Draft, since time.Time, wait bool) error {
	draft.Subtype = receipts.Refused
	if known, err := noted(ctx, j.reads, id, draft, since); known || err != nil {
		return maybeUnavailable(err)
	}
	note := func(ctx context.Context, tx *sql.Tx) error {
		lock := skipping(lockCaseSQL)
		if wait {
			lock = waiting(lockCaseSQL)
		}
		var seq int64
		switch err := tx.QueryRowContext(ctx, lock, id.String(), tenant).Scan(&seq); {
		case errors.Is(err, sql.ErrNoRows):
			return ErrBusy // cases are never removed
		case err != nil:
			return err
		}
		// Asked again under the lock: the statement before may have been another's.
		if known, err := noted(ctx, tx, id, draft, since); known || err != nil {
			return err
		}
		return note(ctx, tx, tenant, id, draft)
	}
	if wait {
		return j.inLane(ctx, failpoint.Refused, note)
	}
	return j.inTx(ctx, j.hot, failpoint.Refused, note)
}

// RefusalNoted reports whether a refusal of the same content digest was left since a time in a
// case, or, when that is zero, in the tenant's register of refusals.
func (j *Journal) RefusalNoted(ctx context.Context, tenant string, id receipts.CaseID, draft receipts.Draft, since time.Time) (bool, error) {
	draft.Subtype = receipts.Refused
	if id.IsZero() {
		register, found, err := j.RegisterCase(ctx, tenant, RefusalRegister)
		if !found || err != nil {
			return false, err
		}
		id, draft.Subtype = register, receipts.AccessRefused
	}
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	known, err := noted(ctx, j.reads, id, draft, since)
	return known, maybeUnavailable(err)
}

// NoteAccessRefusalOnce is NoteRefusalOnce where no case is named: in the tenant's register of
// refusals.
func (j *Journal) NoteAccessRefusalOnce(ctx context.Context, tenant string, draft receipts.Draft, since time.Time) error {
	draft.Subtype = receipts.AccessRefused
	return j.inLane(ctx, failpoint.Refusal, func(ctx context.Context, tx *sql.Tx) error {
		id, err := lockRegister(ctx, tx, tenant, RefusalRegister)
		if err != nil {
			return err
		}
		if known, err := noted(ctx, tx, id, draft, since); known || err != nil {
			return err
		}
		return tellRegister(ctx, tx, tenant, RefusalRegister, draft)
	})
}

func noted(ctx context.Context, q querier, id receipts.CaseID, draft receipts.Draft, since time.Time) (known bool, err error) {
	rows, err := q.QueryContext(ctx, `SELECT EXISTS (SELECT FROM recourse.receipts WHERE case_id = $1 AND subtype = $2 AND at >= $3
		AND body::json -> 'payload' ->> 'content_digest' = $4)`, id.String(), string(draft.Subtype), since, draft.Payload.ContentDigest)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&known); err != nil {
			return false, err
		}
	}
	return known, rows.Err()
}
