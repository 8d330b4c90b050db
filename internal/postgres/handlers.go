package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// ErrHandlerExists tells that the run which was to handle a letter can't begin, because
// there is a case of its subject already. Nothing was written.
var ErrHandlerExists = errors.New("postgres: the letter has a handler")

// Handler is the run that handles a dead letter. Beside the change in which a run
// dies, it begins in the same commit: there is one for each death, and none without.
// Deaths at the same time share that commit (deathbatch.go).
type Handler struct {
	Letter background.RunID // the run that dies
	Opens  Change           // the handler's case with its run
}

func (Handler) failpointName() string { return failpoint.LetterHandler }

// write waits for nobody: a handler's subject names its letter, whose case is locked.
func (h Handler) write(ctx context.Context, tx *sql.Tx) error {
	return openHandlers(ctx, tx, tx, withSubjectLock(openCaseSQL), []Handler{h})
}

// Handlers finds the runs that handle letters of a tenant, by letter.
func (j *Journal) Handlers(ctx context.Context, tenant string, letters []background.RunID) (map[background.RunID]background.RunID, error) {
	if len(letters) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c := newColumns(1, 1)
	for _, id := range letters {
		c.id(id)
	}
	var rows []struct {
		Letter uuid.UUID `db:"letter"`
		Run    uuid.UUID `db:"run"`
	}
	args := append(c.args(), tenant)
	if err := j.readDB.SelectContext(ctx, &rows, `SELECT letter, run FROM recourse.handlers WHERE letter = ANY($1::uuid[]) AND tenant = $2`, args...); err != nil {
		return nil, unavailable(err)
	}
	out := make(map[background.RunID]background.RunID, len(rows))
	for _, r := range rows {
		out[background.RunID(r.Letter)] = background.RunID(r.Run)
	}
	return out, nil
}

const handlerMismatchSQL = `
SELECT d.case_id, h.letter, 'run ' || h.letter || ' and the run that is said to handle its letter do not tell of each other' FROM recourse.handlers h
  LEFT JOIN recourse.runs d ON d.id = h.letter AND d.tenant = h.tenant AND d.state = 'dead_lettered'
  LEFT JOIN recourse.runs r ON r.id = h.run AND r.tenant = h.tenant AND r.retry_key = 'dlq:' || h.letter
WHERE h.tenant = $1 AND (d.id IS NULL OR r.id IS NULL OR NOT EXISTS (
  SELECT FROM recourse.receipts e WHERE e.case_id = d.case_id AND e.run_id = d.id AND e.subtype = 'dead-lettered'
    AND e.body::json -> 'payload' ->> 'new_run' = h.run::text))`

// EachHandlerMismatch gives the letters of a tenant that do not tell of their handler, or whose
// handler does not tell of them.
func (j *Journal) EachHandlerMismatch(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	return j.eachDiscrepancy(ctx, visit, handlerMismatchSQL, tenant)
}
