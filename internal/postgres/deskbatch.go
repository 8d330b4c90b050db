package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// MoveFiled writes changes of letters, each of another case, in one commit, with the
// desks, or what rules count, beside them. It never waits for a foreign transaction; done tells for each
// change whether it was written, and one that was not has lost its guard or its row
// was locked: read it again. After an error the same changes may be asked for again.
func (j *Journal) MoveFiled(ctx context.Context, changes []Change) (done []bool, err error) {
	asked := false
	defer func() {
		if err != nil && !asked {
			err = uncommitted{err}
		}
	}()
	if !j.moveLane.enter(ctx) {
		return nil, ErrBusy
	}
	defer j.moveLane.leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	rows, err := sealAll(ctx, changes)
	if err != nil {
		return nil, err
	}
	tx, err := j.moveLane.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	verdicts, err := applyMoves(ctx, tx, skipping(moveSQL), rows)
	if err == nil {
		err = besides(ctx, tx, rows, verdicts)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	point := pointOfFiled(rows)
	failpoint.Hit(failpoint.JournalBefore, point)
	asked = true
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return nil, unavailable(err)
	}
	j.announce()
	for i := range rows {
		j.recent.Remove(rows[i].After.Run.ID)
		done = append(done, verdicts[i] == written)
	}
	return done, nil
}

// uncommitted is an error from before the commit was asked for.
type uncommitted struct{ error }

func (u uncommitted) Unwrap() error { return u.error }

// Uncommitted reports whether it is certain, after an error of MoveFiled, that nothing was
// written. A commit that was asked for may have been made, whatever came of the answer.
func Uncommitted(err error) bool {
	var u uncommitted
	return errors.As(err, &u)
}

// pointOfFiled names the transaction among the failpoints: a rule's is its own.
func pointOfFiled(rows []*sealed) string {
	for _, r := range rows {
		if b, ok := r.Beside.(ByRule); ok {
			return b.point()
		}
	}
	return failpoint.Desk
}

func sealAll(ctx context.Context, changes []Change) ([]*sealed, error) {
	rows := make([]*sealed, len(changes))
	for i := range changes {
		var err error
		declare(ctx, changes[i].Drafts)
		if rows[i], err = seal(&changes[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// besides writes what is beside the changes that were written.
func besides(ctx context.Context, tx *sql.Tx, rows []*sealed, verdicts []verdict) error {
	var desks []DeskRow
	var cleared []background.RunID
	var byRule []ByRule
	for i, r := range rows {
		if verdicts[i] != written {
			continue
		}
		switch b := r.Beside.(type) {
		case nil:
		case DeskRow:
			desks = append(desks, b)
		case Cleared:
			cleared = append(cleared, b.Run)
		case ByRule:
			byRule = append(byRule, b)
		default:
			if err := b.write(ctx, tx); err != nil {
				return err
			}
		}
	}
	if err := setDesks(ctx, tx, desks); err != nil {
		return err
	}
	if err := writeByRule(ctx, tx, byRule); err != nil {
		return err
	}
	return clearDesks(ctx, tx, cleared)
}
