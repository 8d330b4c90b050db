package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// SideEffect is what a change writes outside its own case, in the same transaction:
// both are committed, or neither. Such a change does not share its statement with
// those that have nothing beside them, which cost nothing more.
type SideEffect interface {
	// write adds to the transaction in which the change itself is written already.
	write(ctx context.Context, tx *sql.Tx) error
	// failpointName names the transaction among the failpoints.
	failpointName() string
}

// applyWithSideEffect writes a change and what is beside it in one commit, on a connection of a
// lane, by either form of the statement.
func (j *Journal) applyWithSideEffect(ctx context.Context, path *slowPath, text string, s *chainedChange) (v result, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	defer j.signalCommitted()
	if s.SideEffect == nil {
		results, err := applyTransitions(ctx, path.db, text, []*chainedChange{s})
		return firstResult(results), err
	}
	tx, err := path.db.BeginTx(ctx, nil)
	if err != nil {
		return conflict, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	results, err := applyTransitions(ctx, tx, text, []*chainedChange{s})
	if err != nil || results[0] != applied {
		return firstResult(results), err
	}
	if err := s.SideEffect.write(ctx, tx); err != nil {
		return conflict, err
	}
	failpoint.Hit(failpoint.JournalBefore, s.SideEffect.failpointName())
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, s.SideEffect.failpointName())
	if err != nil {
		return conflict, err
	}
	return applied, nil
}

func firstResult(results []result) result {
	if len(results) == 0 {
		return conflict
	}
	return results[0]
}
