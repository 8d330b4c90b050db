package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// company reports whether a change shares its commit with others: most do, and deaths
// whose handlers begin do so among themselves. Whatever else is beside a change is
// written alone.
func (c *Change) company() bool {
	_, dies := c.Beside.(Handler)
	return c.Beside == nil || dies
}

// flushDeaths writes a batch of deaths with the runs that handle their letters, in one
// commit. A batch that can't be written as a whole is split, so that only the rows
// that can't be written alone fail.
func (j *Journal) flushDeaths(rows []*sealed) []answer[verdict] {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	defer j.announce()
	out := make([]answer[verdict], len(rows))
	verdicts, err := j.dieTogether(ctx, rows)
	for i := range rows {
		switch {
		case err == nil:
			out[i].value = verdicts[i]
		case ofContention(err) || errors.Is(err, errLocked): // lost: each row asks again, alone
		case len(rows) > 1 && (ofData(err) || errors.Is(err, ErrHandled)):
			out[i] = j.flushDeaths(rows[i : i+1])[0]
		case errors.Is(err, ErrHandled):
			out[i].err = err
		default:
			out[i].err = refusedOr(err)
		}
	}
	return out
}

// errLocked tells that another transaction opens a case of the same subject.
var errLocked = errors.New("postgres: the subject is locked")

// dieTogether writes moves and the cases beside those that hold their guards. It
// never waits for another transaction.
func (j *Journal) dieTogether(ctx context.Context, rows []*sealed) (verdicts []verdict, err error) {
	tx, err := j.hot.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	if verdicts, err = applyMoves(ctx, bound{tx.StmtContext(ctx, j.move.stmt)}, "", rows); err != nil {
		return nil, err
	}
	var begin []Handler
	for i, v := range verdicts {
		if v == written {
			begin = append(begin, rows[i].Beside.(Handler))
		}
	}
	if len(begin) == 0 {
		return verdicts, nil
	}
	if err := beginHandlers(ctx, tx, bound{tx.StmtContext(ctx, j.open.stmt)}, "", begin); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Handler)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Handler)
	return verdicts, err
}

const linkSQL = `INSERT INTO recourse.handlers (letter, run, tenant) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[])`

// beginHandlers opens the cases of handlers, all or none, and links them with their
// letters. text is that of the open statement, where q is not bound to it.
func beginHandlers(ctx context.Context, tx *sql.Tx, q querier, text string, all []Handler) error {
	rows := make([]*sealed, len(all))
	links := newColumns(3, len(all))
	for i, h := range all {
		var err error
		if rows[i], err = seal(&h.Opens); err != nil {
			return err
		}
		run := &h.Opens.After.Run
		links.id(h.Letter)
		links.id(run.ID)
		links.str(run.Tenant)
	}
	opens, err := applyOpens(ctx, q, text, rows)
	if err != nil {
		return err
	}
	for _, o := range opens {
		switch o.verdict {
		case written:
		case lost:
			return errLocked
		default:
			return ErrHandled
		}
	}
	_, err = tx.ExecContext(ctx, linkSQL, links.args()...)
	return err
}
