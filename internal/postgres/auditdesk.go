package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/receipts"
)

// AnnotationReceipts are what a desk is made by, and taken away by.
var AnnotationReceipts = []receipts.Subtype{
	receipts.HoldPlaced, receipts.HoldReleased, receipts.Marked, receipts.RetentionEnding, receipts.Purged, receipts.RetentionExpired,
}

type storedAnnotations struct {
	Run             uuid.UUID    `db:"run_id"`
	Held            bool         `db:"held"`
	HoldReason      string       `db:"hold_reason"`
	Reprocess       *bool        `db:"reprocess_eligible"`
	Review          *bool        `db:"manual_review_required"`
	MarkReason      string       `db:"mark_reason"`
	RetentionEndsAt sql.NullTime `db:"ends_at"`
}

const annotationsSQL = `SELECT k.run_id, k.held, k.hold_reason, k.reprocess_eligible, k.manual_review_required, k.mark_reason, k.ends_at FROM recourse.desk k `

// Annotations reads the desks of runs of a tenant, as far as there are any.
func (j *Journal) Annotations(ctx context.Context, tenant string, ids []background.RunID) (map[background.RunID]Annotations, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c := newColumns(1, len(ids))
	for _, id := range ids {
		c.id(id)
	}
	return selectAnnotations(ctx, j.readDB, `WHERE k.run_id = ANY($1::uuid[]) AND k.tenant = $2`, append(c.args(), tenant)...)
}

func selectAnnotations(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) (map[background.RunID]Annotations, error) {
	var rows []storedAnnotations
	if err := sqlx.SelectContext(ctx, q, &rows, annotationsSQL+where, args...); err != nil {
		return nil, unavailable(err)
	}
	out := make(map[background.RunID]Annotations, len(rows))
	for _, r := range rows {
		d := Annotations{Held: r.Held, HoldReason: r.HoldReason, Reprocess: r.Reprocess, Review: r.Review, MarkReason: r.MarkReason}
		if r.RetentionEndsAt.Valid {
			d.RetentionEndsAt = r.RetentionEndsAt.Time.UTC()
		}
		out[background.RunID(r.Run)] = d
	}
	return out, nil
}

// AnnotationsWithTrail reads the receipts of a case and the desks of its runs as they are at one
// moment.
func (j *Journal) AnnotationsWithTrail(ctx context.Context, tenant string, id receipts.CaseID) (trail []receipts.Receipt, annotations map[background.RunID]Annotations, err error) {
	tx, err := j.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	if trail, err = selectTrail(ctx, tx, tenant, id); err != nil {
		return nil, nil, err
	}
	annotations, err = selectAnnotations(ctx, tx, `JOIN recourse.runs r ON r.id = k.run_id WHERE r.tenant = $1 AND r.case_id = $2`, tenant, id.String())
	return trail, annotations, err
}

func selectTrail(ctx context.Context, tx *sqlx.Tx, tenant string, id receipts.CaseID) ([]receipts.Receipt, error) {
	var rows []receiptRow
	if err := tx.SelectContext(ctx, &rows, `SELECT `+receiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 ORDER BY seq`, tenant, id.String()); err != nil {
		return nil, unavailable(err)
	}
	out := make([]receipts.Receipt, len(rows))
	for i := range rows {
		out[i] = rows[i].receipt()
	}
	return out, nil
}

const annotationsWithoutReceiptSQL = `SELECT r.case_id, k.run_id, 'letter ' || k.run_id || ' of ' || $1::text || ' is held, marked or announced, and no receipt says so'
FROM recourse.desk k LEFT JOIN recourse.runs r ON r.id = k.run_id AND r.tenant = k.tenant
WHERE k.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = k.run_id AND e.subtype = ANY($2::text[]))`

// EachAnnotationWithoutReceipt gives the desks of a tenant of which no receipt tells.
func (j *Journal) EachAnnotationWithoutReceipt(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	subtypes := make(pq.StringArray, len(AnnotationReceipts))
	for i, s := range AnnotationReceipts {
		subtypes[i] = string(s)
	}
	return j.eachDiscrepancy(ctx, visit, annotationsWithoutReceiptSQL, tenant, subtypes)
}

// KeysWithTrail reads the keys of a tenant, and the receipts of its register of keys, as
// they are at one moment.
func (j *Journal) KeysWithTrail(ctx context.Context, tenant string) (keys []access.Key, trail []receipts.Receipt, err error) {
	tx, err := j.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	var rows []keyRow
	if err := tx.SelectContext(ctx, &rows, keySQL+`WHERE tenant = $1 ORDER BY created_at, id`, tenant); err != nil {
		return nil, nil, unavailable(err)
	}
	for i := range rows {
		keys = append(keys, rows[i].key())
	}
	var caseID uuid.UUID
	err = tx.QueryRowContext(ctx, `SELECT case_id FROM recourse.registers WHERE tenant = $1 AND subject = $2`, tenant, string(KeyLog)).Scan(&caseID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return keys, nil, nil
	case err != nil:
		return nil, nil, unavailable(err)
	}
	trail, err = selectTrail(ctx, tx, tenant, receipts.CaseID(caseID))
	return keys, trail, err
}
