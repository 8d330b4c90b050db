package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// Beside is what a change writes outside its own case, in the same transaction:
// both are committed, or neither. Such a change does not share its statement with
// those that have nothing beside them, which cost nothing more.
type Beside interface {
	// write adds to the transaction in which the change itself is written already.
	write(ctx context.Context, tx *sql.Tx) error
	// point names the transaction among the failpoints.
	point() string
}

// together writes a change and what is beside it in one commit, on a connection of a
// lane, by either form of the statement.
func (j *Journal) together(ctx context.Context, l *lane, text string, s *sealed) (v verdict, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	defer j.announce()
	if s.Beside == nil {
		vs, err := applyMoves(ctx, l.db, text, []*sealed{s})
		return verdictOf(vs), err
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return lost, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	vs, err := applyMoves(ctx, tx, text, []*sealed{s})
	if err != nil || vs[0] != written {
		return verdictOf(vs), err
	}
	if err := s.Beside.write(ctx, tx); err != nil {
		return lost, err
	}
	failpoint.Hit(failpoint.JournalBefore, s.Beside.point())
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, s.Beside.point())
	if err != nil {
		return lost, err
	}
	return written, nil
}

func verdictOf(vs []verdict) verdict {
	if len(vs) == 0 {
		return lost
	}
	return vs[0]
}
