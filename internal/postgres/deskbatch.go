package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// ApplyLetterBatch writes changes of letters, each of another case, in one commit, with the
// desks, or what rules count, beside them. It never waits for a foreign transaction; done tells for each
// change whether it was written, and one that was not has lost its guard or its row
// was locked: read it again. After an error the same changes may be asked for again.
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

// notCommitted is an error from before the commit was asked for.
type notCommitted struct{ error }

func (u notCommitted) Unwrap() error { return u.error }

// NotCommitted reports whether it is certain, after an error of ApplyLetterBatch, that nothing was
// written. A commit that was asked for may have been made, whatever came of the answer.
func NotCommitted(err error) bool {
	var u notCommitted
	return errors.As(err, &u)
}

// letterBatchFailpoint names the transaction among the failpoints: a rule's is its own.
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

// writeSideEffects writes what is beside the changes that were written.
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
