package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

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

func (a AnnotationsRow) write(ctx context.Context, tx *sql.Tx) error {
	return upsertAnnotations(ctx, tx, []AnnotationsRow{a})
}

func upsertAnnotations(ctx context.Context, tx *sql.Tx, rows []AnnotationsRow) error {
	if len(rows) == 0 {
		return nil
	}
	c := pg.NewTextColumns(9, len(rows))
	for _, d := range rows {
		c.ID(d.Run)
		c.Str(d.Tenant)
		c.Bool(d.Annotations.Held)
		c.Str(d.Annotations.HoldReason)
		c.BoolOrNull(d.Annotations.Reprocess)
		c.BoolOrNull(d.Annotations.Review)
		c.Str(d.Annotations.MarkReason)
		c.Bool(!d.Annotations.RetentionEndsAt.IsZero())
		c.Time(d.Annotations.RetentionEndsAt)
	}
	_, err := tx.ExecContext(ctx, upsertAnnotationsSQL, c.Args()...)
	return err
}

// Erasure is the SideEffect of a purge: it deletes the annotations of a dead letter, and
// the payload of a task of a plain family. The request of a settlement to the escrow
// service stays: a payment found later is read with it.
type Erasure struct{ Run background.RunID }

func (Erasure) failpointName() string { return failpoint.Annotations }

func (e Erasure) write(ctx context.Context, tx *sql.Tx) error {
	return eraseLetters(ctx, tx, []background.RunID{e.Run})
}

const (
	deleteAnnotationsSQL = `DELETE FROM recourse.annotations WHERE run_id = ANY($1::uuid[])`
	erasePayloadsSQL     = `UPDATE recourse.runs SET payload = NULL WHERE id = ANY($1::uuid[]) AND operation_key IS NULL AND letter = 'purged'`
)

func eraseLetters(ctx context.Context, tx *sql.Tx, runs []background.RunID) error {
	if len(runs) == 0 {
		return nil
	}
	c := pg.NewTextColumns(1, len(runs))
	for _, id := range runs {
		c.ID(id)
	}
	if _, err := tx.ExecContext(ctx, deleteAnnotationsSQL, c.Args()...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SELECT set_config('recourse.erasing', 'purged', true)`); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, erasePayloadsSQL, c.Args()...)
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
	if !j.txPath.Acquire(ctx) {
		return nil, ErrBusy
	}
	defer j.txPath.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	chained, err := chainAll(ctx, changes)
	if err != nil {
		return nil, err
	}
	statement, err := j.aloneStmts[j.txPath].Prepare(ctx)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	tx, err := j.txPath.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	held, err := lockFingerprints(ctx, tx, chained...)
	if err != nil {
		return nil, busyOrWrapped(err)
	}
	results, err := applyWideTransitions(ctx, statement.In(ctx, tx), "", chained)
	if err == nil {
		err = held.claim(ctx, tx, chained, results)
	}
	if err == nil {
		err = writeSideEffects(ctx, tx, chained, results)
	}
	if err != nil {
		return nil, busyOrWrapped(err)
	}
	point := letterBatchFailpoint(chained)
	failpoint.Hit(failpoint.JournalBefore, point)
	commitRequested = true
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	j.SignalCommitted()
	for i := range chained {
		j.cache.Remove(chained[i].After.Run.ID)
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
func letterBatchFailpoint(changes []*chainedChange) string {
	for _, ch := range changes {
		if b, ok := ch.SideEffect.(RuleAction); ok {
			return b.failpointName()
		}
	}
	return failpoint.Annotations
}

// writeSideEffects writes the side effects of the changes that were applied.
func writeSideEffects(ctx context.Context, tx *sql.Tx, changes []*chainedChange, results []result) error {
	var annotations []AnnotationsRow
	var erased []background.RunID
	var actions []RuleAction
	for i, ch := range changes {
		if results[i] != applied {
			continue
		}
		switch b := ch.SideEffect.(type) {
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
