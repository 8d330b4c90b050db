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

// together writes a change and what is beside it in one commit. It waits for locks
// as long as its lane does.
func (j *Journal) together(ctx context.Context, s *sealed) (v verdict, err error) {
	tx, err := j.moveLane.db.BeginTx(ctx, nil)
	if err != nil {
		return lost, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	vs, err := applyMoves(ctx, tx, waiting(moveSQL), []*sealed{s})
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

// writeAlone writes one change, on its own connection.
func (j *Journal) writeAlone(ctx context.Context, s *sealed) (verdict, error) {
	if s.Beside != nil {
		return j.together(ctx, s)
	}
	vs, err := applyMoves(ctx, j.moveLane.db, waiting(moveSQL), []*sealed{s})
	return verdictOf(vs), err
}

func verdictOf(vs []verdict) verdict {
	if len(vs) == 0 {
		return lost
	}
	return vs[0]
}
