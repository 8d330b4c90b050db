package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// batchable reports whether a change shares its commit with others: most do, and deaths
// whose handlers begin do so among themselves. Whatever else is beside a change is
// written alone.
func (c *Change) batchable() bool {
	_, isDeath := c.SideEffect.(Handler)
	return c.SideEffect == nil || isDeath
}

// flushDeaths writes a batch of deaths with the runs that handle their letters, in one
// commit. A batch that can't be written as a whole is split, so that only the rows
// that can't be written alone fail.
func (j *Journal) flushDeaths(rows []*chainedChange) []answer[result] {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	defer j.signalCommitted()
	out := make([]answer[result], len(rows))
	results, err := j.applyDeathBatch(ctx, rows)
	for i := range rows {
		switch {
		case err == nil:
			out[i].value = results[i]
		case isContention(err) || errors.Is(err, errSubjectLocked): // lost: each row asks again, alone
		case len(rows) > 1 && (isDataError(err) || errors.Is(err, ErrHandlerExists)):
			out[i] = j.flushDeaths(rows[i : i+1])[0]
		case errors.Is(err, ErrHandlerExists):
			out[i].err = err
		default:
			out[i].err = unrecordableOrUnavailable(err)
		}
	}
	return out
}

// errSubjectLocked tells that another transaction opens a case of the same subject.
var errSubjectLocked = errors.New("postgres: the subject is locked")

// applyDeathBatch writes moves and the cases beside those that hold their guards. It
// never waits for another transaction.
func (j *Journal) applyDeathBatch(ctx context.Context, rows []*chainedChange) (results []result, err error) {
	tx, err := j.batchDB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	if results, err = applyTransitions(ctx, preparedStmt{tx.StmtContext(ctx, j.transitionStmt.stmt)}, "", rows); err != nil {
		return nil, err
	}
	var handlers []Handler
	for i, v := range results {
		if v == applied {
			handlers = append(handlers, rows[i].SideEffect.(Handler))
		}
	}
	if len(handlers) == 0 {
		return results, nil
	}
	if err := openHandlers(ctx, tx, preparedStmt{tx.StmtContext(ctx, j.openStmt.stmt)}, "", handlers); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.LetterHandler)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.LetterHandler)
	return results, err
}

const linkHandlersSQL = `INSERT INTO recourse.handlers (letter, run, tenant) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[])`

// openHandlers opens the cases of handlers, all or none, and links them with their
// letters. text is that of the open statement, where q is not bound to it.
func openHandlers(ctx context.Context, tx *sql.Tx, q querier, statement string, all []Handler) error {
	rows := make([]*chainedChange, len(all))
	links := newColumns(3, len(all))
	for i, h := range all {
		var err error
		if rows[i], err = chain(&h.Opens); err != nil {
			return err
		}
		run := &h.Opens.After.Run
		links.id(h.Letter)
		links.id(run.ID)
		links.str(run.Tenant)
	}
	opens, err := applyOpens(ctx, q, statement, rows)
	if err != nil {
		return err
	}
	for _, o := range opens {
		switch o.result {
		case applied:
		case conflict:
			return errSubjectLocked
		default:
			return ErrHandlerExists
		}
	}
	_, err = tx.ExecContext(ctx, linkHandlersSQL, links.args()...)
	return err
}
