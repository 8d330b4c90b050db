package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// AnnotationReceipts are the subtypes of the receipts that create, change or remove
// annotations.
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

const annotationsSQL = `SELECT k.run_id, k.held, k.hold_reason, k.reprocess_eligible, k.manual_review_required, k.mark_reason, k.ends_at FROM recourse.annotations k `

// Letters reads dead letters with their annotations, for those who change them.
type Letters struct {
	*shared
}

// Annotations reads the annotations of runs of a tenant. Runs without any are left out.
func (l *Letters) Annotations(ctx context.Context, tenant string, ids []background.RunID) (map[background.RunID]Annotations, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c := newColumns(1, len(ids))
	for _, id := range ids {
		c.id(id)
	}
	return selectAnnotations(ctx, l.readDB, `WHERE k.run_id = ANY($1::uuid[]) AND k.tenant = $2`, append(c.args(), tenant)...)
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

// AnnotationsWithTrail reads the receipts of a case and the annotations of its runs, at one
// moment.
func (l *Letters) AnnotationsWithTrail(ctx context.Context, tenant string, id receipts.CaseID) (trail []receipts.Receipt, annotations map[background.RunID]Annotations, err error) {
	tx, err := l.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
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
FROM recourse.annotations k LEFT JOIN recourse.runs r ON r.id = k.run_id AND r.tenant = k.tenant
WHERE k.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = k.run_id AND e.subtype = ANY($2::text[]))`

// EachAnnotationWithoutReceipt visits the annotations of a tenant that no receipt records.
func (a *Audit) EachAnnotationWithoutReceipt(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	subtypes := make(pq.StringArray, len(AnnotationReceipts))
	for i, s := range AnnotationReceipts {
		subtypes[i] = string(s)
	}
	return a.eachDiscrepancy(ctx, visit, annotationsWithoutReceiptSQL, tenant, subtypes)
}

// WithTrail reads the keys of a tenant and the receipts of its key log, at one moment.
func (k *Keys) WithTrail(ctx context.Context, tenant string) (keys []access.Key, trail []receipts.Receipt, err error) {
	tx, err := k.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
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
	err = tx.QueryRowContext(ctx, `SELECT case_id FROM recourse.operation_logs WHERE tenant = $1 AND subject = $2`, tenant, string(KeyLog)).Scan(&caseID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return keys, nil, nil
	case err != nil:
		return nil, nil, unavailable(err)
	}
	trail, err = selectTrail(ctx, tx, tenant, receipts.CaseID(caseID))
	return keys, trail, err
}

// Annotations are the hold, the marks and the announced end of retention of a dead letter.
// The zero value is that of a dead letter without any.
type Annotations struct {
	Held            bool
	HoldReason      string    // empty unless held
	Reprocess       *bool     // reprocess_eligible; nil if not marked
	Review          *bool     // manual_review_required; nil if not marked
	MarkReason      string    // of the last mark
	RetentionEndsAt time.Time // the announced end of its retention; zero if none was announced
}

// LetterRow is a dead letter with its annotations at one moment. Every change of
// annotations writes a receipt, so that the case's head is the version of both.
type LetterRow struct {
	Snapshot
	Annotations Annotations
}

// letterRowsSQL returns the query for dead letters with their annotations, oldest death
// first; where selects them.
func letterRowsSQL(where string) string {
	return `SELECT q.*, coalesce(d.held, false) AS on_hold, coalesce(d.hold_reason, '') AS hold_reason, d.reprocess_eligible, d.manual_review_required,
  coalesce(d.mark_reason, '') AS mark_reason, d.ends_at
FROM (` + snapshotSQL + where + `) q LEFT JOIN recourse.annotations d ON d.run_id = q.id ORDER BY q.dead_at, q.id`
}

var letterRowsByIDSQL = letterRowsSQL(`WHERE r.id = ANY($1::uuid[])`)

// ByID reads runs of any tenant with their annotations, by id. Runs that do not
// exist are left out.
func (l *Letters) ByID(ctx context.Context, ids ...background.RunID) ([]LetterRow, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	found, _, err := l.selectLetterRows(ctx, LetterRowPosition{}, letterRowsByIDSQL, c.args()...)
	return found, err
}

// selectLetterRows reads dead letters after a position, and returns the position of the
// last. Rows that this program can't read are skipped, unchanged, and passed to Warn.
func (l *Letters) selectLetterRows(ctx context.Context, after LetterRowPosition, query string, args ...any) (out []LetterRow, last LetterRowPosition, err error) {
	rows, err := l.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, after, unavailable(err)
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var scanned snapshotRow
		var d Annotations
		var ends sql.NullTime
		s, err := scanned.read(rows, &d.Held, &d.HoldReason, &d.Reprocess, &d.Review, &d.MarkReason, &ends)
		if scanned.ID == (uuid.UUID{}) {
			return nil, after, unavailable(err)
		}
		if ends.Valid {
			d.RetentionEndsAt = ends.Time.UTC()
		}
		last = LetterRowPosition{scanned.DeadAt.Time.UTC(), background.RunID(scanned.ID)}
		if err != nil {
			l.warnUnreadable(unreadable{{id: background.RunID(scanned.ID), err: err}})
			continue
		}
		out = append(out, LetterRow{s, d})
	}
	if err := rows.Err(); err != nil {
		return nil, after, unavailable(err)
	}
	return out, last, nil
}

// AnnotationsRow is the SideEffect of a change that also changes the annotations of its
// dead letter.
type AnnotationsRow struct {
	Run         background.RunID
	Tenant      string
	Annotations Annotations
}

const upsertAnnotationsSQL = `
INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason, reprocess_eligible, manual_review_required, mark_reason, announced, ends_at)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::bool[], $4::text[], $5::bool[], $6::bool[], $7::text[], $8::bool[], $9::timestamptz[])
ON CONFLICT (run_id) DO UPDATE SET held = excluded.held, hold_reason = excluded.hold_reason, reprocess_eligible = excluded.reprocess_eligible,
  manual_review_required = excluded.manual_review_required, mark_reason = excluded.mark_reason, announced = excluded.announced, ends_at = excluded.ends_at`

func (AnnotationsRow) failpointName() string { return failpoint.Annotations }

func (d AnnotationsRow) write(ctx context.Context, tx *sql.Tx) error {
	return upsertAnnotations(ctx, tx, []AnnotationsRow{d})
}

func upsertAnnotations(ctx context.Context, tx *sql.Tx, rows []AnnotationsRow) error {
	if len(rows) == 0 {
		return nil
	}
	c := newColumns(9, len(rows))
	for _, d := range rows {
		c.id(d.Run)
		c.str(d.Tenant)
		c.bool(d.Annotations.Held)
		c.str(d.Annotations.HoldReason)
		c.boolOrNull(d.Annotations.Reprocess)
		c.boolOrNull(d.Annotations.Review)
		c.str(d.Annotations.MarkReason)
		c.bool(!d.Annotations.RetentionEndsAt.IsZero())
		c.time(d.Annotations.RetentionEndsAt)
	}
	_, err := tx.ExecContext(ctx, upsertAnnotationsSQL, c.args()...)
	return err
}

func (c *columns) boolOrNull(v *bool) {
	if v == nil {
		c.null()
		return
	}
	c.bool(*v)
}

// Erasure is the SideEffect of a purge: it deletes the annotations of a dead letter, and
// the payload of a task of a plain family. The request of a settlement to the escrow
// service stays: a payment found later is read with it.
type Erasure struct{ Run background.RunID }

func (Erasure) failpointName() string { return failpoint.Annotations }

func (c Erasure) write(ctx context.Context, tx *sql.Tx) error {
	return eraseLetters(ctx, tx, []background.RunID{c.Run})
}

func eraseLetters(ctx context.Context, tx *sql.Tx, runs []background.RunID) error {
	if len(runs) == 0 {
		return nil
	}
	c := newColumns(1, len(runs))
	for _, id := range runs {
		c.id(id)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM recourse.annotations WHERE run_id = ANY($1::uuid[])`, c.args()...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SELECT set_config('recourse.erasing', 'purged', true)`); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE recourse.runs SET payload = NULL WHERE id = ANY($1::uuid[]) AND operation_key IS NULL AND letter = 'purged'`, c.args()...)
	return err
}

// ApplyLetterBatch writes changes of dead letters, each of another case, with their side
// effects, in one commit. It never waits for another transaction. done reports for each
// change whether it was written; a change that was not lost its guard or its row was
// locked, and the caller reads again. After an error the same changes may be applied again.
func (j *Journal) ApplyLetterBatch(ctx context.Context, changes []Change) (done []bool, err error) {
	commitRequested := false
	defer func() {
		if err != nil && !commitRequested {
			err = notCommitted{err}
		}
	}()
	if !j.txPath.acquire(ctx) {
		return nil, ErrBusy
	}
	defer j.txPath.release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	rows, err := chainAll(ctx, changes)
	if err != nil {
		return nil, err
	}
	tx, err := j.txPath.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	results, err := applyTransitions(ctx, tx, withSkipLocked(transitionSQL), rows)
	if err == nil {
		err = writeSideEffects(ctx, tx, rows, results)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	point := letterBatchFailpoint(rows)
	failpoint.Hit(failpoint.JournalBefore, point)
	commitRequested = true
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return nil, unavailable(err)
	}
	j.signalCommitted()
	for i := range rows {
		j.cache.Remove(rows[i].After.Run.ID)
		done = append(done, results[i] == applied)
	}
	return done, nil
}

// notCommitted marks an error from before COMMIT was sent.
type notCommitted struct{ error }

func (u notCommitted) Unwrap() error { return u.error }

// NotCommitted reports whether err, of ApplyLetterBatch, means that certainly nothing was
// written. Once COMMIT was sent, the batch may be written whatever the error is.
func NotCommitted(err error) bool {
	var u notCommitted
	return errors.As(err, &u)
}

// letterBatchFailpoint returns the failpoint of the batch: that of rule actions if it has
// any.
func letterBatchFailpoint(rows []*chainedChange) string {
	for _, r := range rows {
		if b, ok := r.SideEffect.(RuleAction); ok {
			return b.failpointName()
		}
	}
	return failpoint.Annotations
}

func chainAll(ctx context.Context, changes []Change) ([]*chainedChange, error) {
	rows := make([]*chainedChange, len(changes))
	for i := range changes {
		var err error
		markSelfDeclared(ctx, changes[i].Drafts)
		if rows[i], err = chain(&changes[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// writeSideEffects writes the side effects of the changes that were applied.
func writeSideEffects(ctx context.Context, tx *sql.Tx, rows []*chainedChange, results []result) error {
	var annotations []AnnotationsRow
	var erased []background.RunID
	var actions []RuleAction
	for i, r := range rows {
		if results[i] != applied {
			continue
		}
		switch b := r.SideEffect.(type) {
		case nil:
		case AnnotationsRow:
			annotations = append(annotations, b)
		case Erasure:
			erased = append(erased, b.Run)
		case RuleAction:
			actions = append(actions, b)
		default:
			if err := b.write(ctx, tx); err != nil {
				return err
			}
		}
	}
	if err := upsertAnnotations(ctx, tx, annotations); err != nil {
		return err
	}
	if err := writeRuleActions(ctx, tx, actions); err != nil {
		return err
	}
	return eraseLetters(ctx, tx, erased)
}
