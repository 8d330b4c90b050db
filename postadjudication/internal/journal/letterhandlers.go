package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// ErrHandlerExists means that the handler of a dead letter can't begin, because a case with
// its subject exists. Nothing was written.
var ErrHandlerExists = errors.New("journal: the dead letter has a handler")

// LetterHandler is the run that handles a dead letter. As the SideEffect of a death it begins in
// the same commit: there is exactly one for each death. Concurrent deaths share that commit
// (flushHandledDeaths).
type LetterHandler struct {
	Letter background.RunID // the run that dies
	Opens  Change           // the handler's case with its run
}

func (LetterHandler) failpointName() string { return failpoint.LetterHandler }

// write never waits for a lock: a handler's subject contains the id of its dead letter,
// whose case this transaction has locked.
func (h LetterHandler) write(ctx context.Context, tx *sql.Tx) error {
	return openLetterHandlers(ctx, tx, tx, withSubjectLock(wideOpenSQL), []LetterHandler{h})
}

const handlersSQL = `SELECT letter, run FROM recourse.handlers WHERE letter = ANY($1::uuid[]) AND tenant = $2`

// Handlers returns the runs that handle dead letters of a tenant, by dead letter.
func (l *Letters) Handlers(ctx context.Context, tenant string, letters []background.RunID) (map[background.RunID]background.RunID, error) {
	if len(letters) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(1, 1)
	for _, id := range letters {
		c.ID(id)
	}
	rows, err := l.handlersStmt.QueryContext(ctx, "", append(c.Args(), tenant)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := map[background.RunID]background.RunID{}
	for rows.Next() {
		var letter, run uuid.UUID
		if err := rows.Scan(&letter, &run); err != nil {
			return nil, pg.Wrap(err)
		}
		out[background.RunID(letter)] = background.RunID(run)
	}
	return out, pg.Wrap(rows.Err())
}

// flushHandledDeaths writes a batch of deaths with their handlers, in one commit. A batch that
// can't be written as a whole is split, so that only rows that can't be written alone fail.
func (j *Journal) flushHandledDeaths(changes []*chainedChange) []pg.Outcome[result] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	defer j.SignalCommitted()
	out := make([]pg.Outcome[result], len(changes))
	results, err := j.applyDeathBatch(ctx, changes)
	for i := range changes {
		switch {
		case err == nil:
			out[i].Value = results[i]
		case pg.IsContention(err) || errors.Is(err, errOpenConflict): // conflict: CommitTransition decides each row again
		case len(changes) > 1 && (pg.IsDataError(err) || errors.Is(err, ErrHandlerExists)):
			out[i] = j.flushHandledDeaths(changes[i : i+1])[0]
		case errors.Is(err, ErrHandlerExists):
			out[i].Err = err
		default:
			out[i].Err = unrecordableOrWrapped(err)
		}
	}
	return out
}

// errOpenConflict means that another transaction is opening a case with the same subject.
var errOpenConflict = errors.New("journal: the subject is locked")

// applyDeathBatch writes transitions, and the handlers of those that were applied. It never
// waits for another transaction.
func (j *Journal) applyDeathBatch(ctx context.Context, changes []*chainedChange) (results []result, err error) {
	transition, err := j.wideTransitionStmt.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	open, err := j.opener.wideOpenStmt.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := j.batchDB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if results, err = applyWideTransitions(ctx, transition.In(ctx, tx), "", changes); err != nil {
		return nil, err
	}
	var handlers []LetterHandler
	for i, res := range results {
		if res == applied {
			handlers = append(handlers, changes[i].SideEffect.(LetterHandler))
		}
	}
	if len(handlers) == 0 {
		return results, nil
	}
	if err := openLetterHandlers(ctx, tx, open.In(ctx, tx), "", handlers); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.LetterHandler)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.LetterHandler)
	return results, err
}

const linkLetterHandlersSQL = `INSERT INTO recourse.handlers (letter, run, tenant) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[])`

// openLetterHandlers opens the cases of handlers, all or none, and links them with their dead
// letters. statement is the text of the open statement; q may ignore it if it has prepared
// it.
func openLetterHandlers(ctx context.Context, tx *sql.Tx, q pg.Querier, statement string, all []LetterHandler) error {
	changes := make([]*chainedChange, len(all))
	links := pg.NewTextColumns(3, len(all))
	for i, h := range all {
		var err error
		if changes[i], err = chain(&h.Opens); err != nil {
			return err
		}
		run := &h.Opens.After.Run
		links.ID(h.Letter)
		links.ID(run.ID)
		links.Str(run.Tenant)
	}
	results, err := applyWideOpens(ctx, q, statement, changes)
	if err != nil {
		return err
	}
	for _, opened := range results {
		switch opened.result {
		case applied:
		case conflict:
			return errOpenConflict
		default:
			return ErrHandlerExists
		}
	}
	_, err = tx.ExecContext(ctx, linkLetterHandlersSQL, links.Args()...)
	return err
}
