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

// projectReceipts is how many receipts a step takes at most, but for those of one
// statement.
const projectReceipts = 4000

// projectWaiting is how many statements' receipts are looked at again and again while
// they have no place in the order of events; of more, a drain gives them their places.
const projectWaiting = 500

// Projected is what one step did.
type Projected struct {
	Cases int  // that it looked at
	More  bool // there is more that can be taken at once
}

const (
	behindSQL = `SELECT coalesce((SELECT max(last) FROM recourse.event_log), 0) > last, (SELECT count(*) FROM (SELECT FROM recourse.outbox ORDER BY id LIMIT $1) o)
FROM recourse.projected WHERE name = 'letters'`

	holdProjectionSQL = `SELECT last FROM recourse.projected WHERE name = 'letters' FOR NO KEY UPDATE`

	// stretchSQL gives the end of what a step takes, and whether that is all.
	stretchSQL = `SELECT coalesce(max(last) FILTER (WHERE last <= $1 + $2), min(last), $1), count(*) FILTER (WHERE last > $1 + $2) > 0
FROM (SELECT last FROM recourse.event_log WHERE last > $1 ORDER BY last LIMIT $2 + 1) l`

	projectedSQL = `UPDATE recourse.projected SET last = $1 WHERE name = 'letters' AND last <> $1`
)

// ProjectLetters takes a step, as the one process that does; it does nothing when
// another one is at it.
func (j *Journal) ProjectLetters(ctx context.Context) (Projected, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	behind, _, err := j.behind(ctx)
	if err != nil || !behind {
		return Projected{}, maybeUnavailable(err)
	}
	done, err := j.project(ctx, holdProjectionSQL+` SKIP LOCKED`, false)
	return done, maybeUnavailable(err)
}

// DrainLetters returns when everything that was committed before the call can be
// found among the letters. It costs one look when nothing waits; else it does the
// work itself, with what has no place in the order of events yet as well.
func (j *Journal) DrainLetters(ctx context.Context) error {
	behind, waiting, err := j.behind(ctx)
	if err != nil || !behind && waiting == 0 {
		return maybeUnavailable(err)
	}
	if waiting > projectWaiting {
		if err := j.Drain(ctx); err != nil {
			return err
		}
	}
	for {
		done, err := j.project(ctx, holdProjectionSQL, true)
		if err != nil || !done.More {
			return maybeUnavailable(err)
		}
	}
}

// behind reports whether the order of events goes on behind what is projected, and how
// many statements' receipts have no place in it yet, as far as that matters.
func (j *Journal) behind(ctx context.Context) (behind bool, waiting int, err error) {
	err = j.projecting.QueryRowContext(ctx, behindSQL, projectWaiting+1).Scan(&behind, &waiting)
	return behind, waiting, err
}

func maybeUnavailable(err error) error {
	if err == nil {
		return nil
	}
	return unavailable(err)
}

// project takes one step. The last one before the end, when toTheEnd is asked for,
// also takes whatever is committed behind the order of events when it looks: all at
// one moment, so that nothing slips by while it is given its place.
func (j *Journal) project(ctx context.Context, hold string, toTheEnd bool) (done Projected, err error) {
	tx, err := j.projecting.BeginTx(ctx, nil)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	var last, upTo int64
	switch err := tx.QueryRowContext(ctx, hold).Scan(&last); {
	case errors.Is(err, sql.ErrNoRows):
		return done, nil
	case err != nil:
		return done, err
	}
	if err := tx.QueryRowContext(ctx, stretchSQL, last, projectReceipts).Scan(&upTo, &done.More); err != nil {
		return done, err
	}
	found, err := deadRuns(ctx, tx, last, upTo, toTheEnd && !done.More)
	if err != nil {
		return done, err
	}
	written, err := writeLetters(ctx, tx, found)
	if err != nil {
		return done, err
	}
	done.Cases = written.cases
	if _, err := tx.ExecContext(ctx, projectedSQL, upTo); err != nil {
		return done, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Project)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Project)
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
