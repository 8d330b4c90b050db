package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// The projection of letters: see recourse.letters. It follows the order of events:
//
//	event log ─▶ cases told of since ─▶ their dead runs as they are now ─▶ letters
//
// A step is one transaction, which holds the row of recourse.projected; so nobody
// ever writes an older reading of a letter over a newer one, a step that ends
// anywhere has done nothing, and one done twice changes nothing.

// maxStepReceipts is how many receipts a step takes at most, but for those of one
// statement.
const maxStepReceipts = 4000

// maxPendingOutbox is how many statements' receipts are looked at again and again while
// they have no place in the order of events; of more, a drain gives them their places.
const maxPendingOutbox = 500

// ProjectionStep is what one step did.
type ProjectionStep struct {
	Cases int  // that it looked at
	More  bool // there is more that can be taken at once
}

const (
	projectionLagSQL = `SELECT coalesce((SELECT max(last) FROM recourse.event_log), 0) > last, (SELECT count(*) FROM (SELECT FROM recourse.outbox ORDER BY id LIMIT $1) o)
FROM recourse.projected WHERE name = 'letters'`

	lockProjectionSQL = `SELECT last FROM recourse.projected WHERE name = 'letters' FOR NO KEY UPDATE`

	// stepEndSQL gives the end of what a step takes, and whether that is all.
	stepEndSQL = `SELECT coalesce(max(last) FILTER (WHERE last <= $1 + $2), min(last), $1), count(*) FILTER (WHERE last > $1 + $2) > 0
FROM (SELECT last FROM recourse.event_log WHERE last > $1 ORDER BY last LIMIT $2 + 1) l`

	recordProjectedSQL = `UPDATE recourse.projected SET last = $1 WHERE name = 'letters' AND last <> $1`
)

// ProjectLetters takes a step, as the one process that does; it does nothing when
// another one is at it.
func (j *Journal) ProjectLetters(ctx context.Context) (ProjectionStep, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	behind, _, err := j.projectionLag(ctx)
	if err != nil || !behind {
		return ProjectionStep{}, unavailableOrNil(err)
	}
	done, err := j.projectStep(ctx, lockProjectionSQL+` SKIP LOCKED`, false)
	return done, unavailableOrNil(err)
}

// CatchUpLetters returns when everything that was committed before the call can be
// found among the letters. It costs one look when nothing waits; else it does the
// work itself, with what has no place in the order of events yet as well.
func (j *Journal) CatchUpLetters(ctx context.Context) error {
	behind, waiting, err := j.projectionLag(ctx)
	if err != nil || !behind && waiting == 0 {
		return unavailableOrNil(err)
	}
	if waiting > maxPendingOutbox {
		if err := j.DrainOutbox(ctx); err != nil {
			return err
		}
	}
	for {
		done, err := j.projectStep(ctx, lockProjectionSQL, true)
		if err != nil || !done.More {
			return unavailableOrNil(err)
		}
	}
}

// projectionLag reports whether the order of events goes on behind what is projected, and how
// many statements' receipts have no place in it yet, as far as that matters.
func (j *Journal) projectionLag(ctx context.Context) (behind bool, waiting int, err error) {
	err = j.projectionDB.QueryRowContext(ctx, projectionLagSQL, maxPendingOutbox+1).Scan(&behind, &waiting)
	return behind, waiting, err
}

func unavailableOrNil(err error) error {
	if err == nil {
		return nil
	}
	return unavailable(err)
}

// projectStep takes one step. The last one before the end, when includePending is asked for,
// also takes whatever is committed behind the order of events when it looks: all at
// one moment, so that nothing slips by while it is given its place.
func (j *Journal) projectStep(ctx context.Context, lockSQL string, includePending bool) (done ProjectionStep, err error) {
	tx, err := j.projectionDB.BeginTx(ctx, nil)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	var last, upTo int64
	switch err := tx.QueryRowContext(ctx, lockSQL).Scan(&last); {
	case errors.Is(err, sql.ErrNoRows):
		return done, nil
	case err != nil:
		return done, err
	}
	if err := tx.QueryRowContext(ctx, stepEndSQL, last, maxStepReceipts).Scan(&upTo, &done.More); err != nil {
		return done, err
	}
	found, err := deadRuns(ctx, tx, last, upTo, includePending && !done.More)
	if err != nil {
		return done, err
	}
	result, err := writeLetters(ctx, tx, found)
	if err != nil {
		return done, err
	}
	done.Cases = result.cases
	if _, err := tx.ExecContext(ctx, recordProjectedSQL, upTo); err != nil {
		return done, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Projection)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Projection)
	return done, err
}

// projectionSettings pin the plans, end a session that stands still while it holds
// the projection, and don't wait for the disk: what is lost with the server is
// projected again.
func projectionSettings() map[string]string {
	settings := sequencerSettings()
	settings["idle_in_transaction_session_timeout"] = settings["idle_session_timeout"]
	delete(settings, "idle_session_timeout")
	settings["enable_mergejoin"], settings["enable_hashjoin"], settings["synchronous_commit"] = "off", "off", "off"
	return settings
}
