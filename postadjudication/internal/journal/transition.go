package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// CommitTransition makes one transition of a run: it decides on the cached or stored snapshot, writes
// the change with its receipts in one commit, and decides again on a new snapshot if the
// case has changed. If the transition is written already, it returns the run as it is. An
// error of decide is returned together with the run as it is now.
//
// Nothing was written after an error of decide, nor after ErrBusy, ErrExceedsHeld, ErrHandlerExists,
// ErrFingerprintHeld, ErrReturnRecorded, pg.ErrClosed, background.ErrSessionLost, background.ErrBreakerOpen and
// background.ErrUnrecordable. After any other error the outcome is unknown, also after that of a context: a
// statement may have returned it. Then the same transition may be committed again.
func (j *Journal) CommitTransition(ctx context.Context, id background.RunID, transition background.TransitionID, decide Decision) (*Snapshot, error) {
	current, cached := j.cache.Get(id)
	for {
		if !cached {
			var err error
			if current, err = j.Cases.SnapshotInBatch(id); err != nil || current.Run.LastTransition == transition {
				return current, err
			}
		}
		change, err := decide(current)
		if err != nil {
			if cached {
				cached = false
				continue
			}
			return current, err
		}
		var path *pg.SlowPath // what was decided on the cache does not wait: it is decided again
		if !cached {
			path = j.transitionPath
		}
		res, err := j.write(ctx, &change, path, change.After.Case.ID.String())
		j.cacheSnapshot(id, change.After, res == applied)
		switch {
		case err != nil:
			return current, err
		case res == applied:
			return change.After, nil
		case res == exceedsHeld:
			return current, ErrExceedsHeld
		case ctx.Err() != nil:
			return current, ctx.Err()
		}
		cached = false
	}
}

// write chains a change and writes it. If a guard of the change does not hold, another transaction may have
// locked its rows. Then write waits for that transaction on a slow path and tries again, unless path is nil.
// One change per lock waits at a time.
//
// The guards of a claim also fail if its session is lost or a circuit breaker blocks it, although the case is
// unchanged. write looks for that before it waits, because there is no lock to wait for, and again after the
// wait, because the same claim would be decided and refused without end.
func (j *Journal) write(ctx context.Context, change *Change, path *pg.SlowPath, lock string) (result, error) {
	ch, err := chainForCaller(ctx, change)
	if err != nil {
		return conflict, unrecordable(err)
	}
	res, err := j.tryWrite(ctx, ch)
	if err != nil {
		j.warnIfBlocked(change.After.Run.ID, err)
	}
	if res != conflict || err != nil || path == nil {
		return res, err
	}
	if err := j.conflictReason(ctx, change); err != nil {
		return conflict, err
	}
	if res, err = j.writeAfterLock(ctx, path, lock, ch); res == conflict && err == nil {
		err = j.conflictReason(ctx, change)
	}
	return res, err
}

// tryWrite writes a change, in a batch if it is batchable, without waiting for the rows of its case and runs.
// The end of a remote attempt may wait for a heartbeat that is being written. A change that is written alone
// may wait for a connection, LockTimeout at most, for the rows of its side effect and for the lock of its
// fingerprint.
func (j *Journal) tryWrite(ctx context.Context, ch *chainedChange) (result, error) {
	switch {
	case ch.batchable() && ch.beginsLetterHandler():
		return j.handledDeaths.Do(ch)
	case ch.batchable() && ch.endsLease():
		return j.leaseEnds.Do(ch)
	case ch.batchable():
		return j.transitions.Do(ch)
	case !j.txPath.Acquire(ctx):
		return conflict, ErrBusy
	}
	defer j.txPath.Release()
	return classifyAlone(j.writeAlone(ctx, j.txPath, ch))
}

// classifyAlone returns the result of a change that was written alone, with its error as callers get it.
func classifyAlone(res result, err error) (result, error) {
	switch {
	case pg.IsContention(err):
		return conflict, ErrBusy
	case errors.Is(err, ErrFingerprintHeld), errors.Is(err, ErrReturnRecorded):
		return conflict, err
	case err != nil:
		return conflict, unrecordableOrWrapped(err)
	}
	return res, nil
}

// writeAfterLock writes a change after the transaction that holds its rows.
func (j *Journal) writeAfterLock(ctx context.Context, path *pg.SlowPath, name string, ch *chainedChange) (result, error) {
	return pg.WaitForLock(ctx, path, name, func() (result, error) { return j.tryWrite(ctx, ch) }, func() (result, error) {
		return classifyAlone(j.writeAlone(ctx, path, ch))
	})
}

// maxCachedPayload bounds the payload of a cached run, and so the memory of the cache.
const maxCachedPayload = 16 << 10

// cacheSnapshot caches a case after this process's own transition, for the next one. It
// removes the entry if the transition was not applied or the run has ended, and caches no run
// with a large payload.
func (j *Journal) cacheSnapshot(id background.RunID, after *Snapshot, ok bool) {
	if ok && after.Run.State.Live() && len(after.Run.Payload) <= maxCachedPayload {
		j.cache.Add(id, after)
		return
	}
	j.cache.Remove(id)
}

// conflictReason returns the error of a guard that stops a claim although its case has not
// changed.
func (j *Journal) conflictReason(ctx context.Context, change *Change) error {
	if !change.isClaim() {
		return nil
	}
	alive, err := j.Sessions.sessionAlive(ctx, change.After.Run.Session)
	switch {
	case err != nil:
		return pg.Wrap(err)
	case !alive:
		return background.ErrSessionLost
	}
	blocked, err := j.Breakers.blockedByBreaker(ctx, change.After.Run.ID)
	switch {
	case err != nil:
		return pg.Wrap(err)
	case blocked:
		return background.ErrBreakerOpen
	}
	return nil
}

// writeAlone writes a change without others, with its side effect in the same commit if it has one,
// on a connection of a slow path. The fork of a unique job is written only if no other live job has its
// fingerprint.
func (j *Journal) writeAlone(ctx context.Context, path *pg.SlowPath, ch *chainedChange) (res result, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	defer j.SignalCommitted()
	if ch.SideEffect == nil && !ch.forksRemoteRun() {
		return applyWideTransition(ctx, j.aloneStmts[path], "", ch) // a Statement ignores the text
	}
	statement, err := j.aloneStmts[path].Prepare(ctx)
	if err != nil {
		return conflict, err
	}
	tx, err := path.DB.BeginTx(ctx, nil)
	if err != nil {
		return conflict, err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	held, err := lockFingerprints(ctx, tx, ch)
	if err != nil {
		return conflict, err
	}
	if res, err = applyWideTransition(ctx, statement.In(ctx, tx), "", ch); err != nil || res != applied {
		return res, err
	}
	if err := held.claim(ctx, tx, []*chainedChange{ch}, []result{res}); err != nil {
		return conflict, err
	}
	point := failpoint.UniqueJob
	if ch.SideEffect != nil {
		point = ch.SideEffect.failpointName()
		if err := ch.SideEffect.write(ctx, tx); err != nil {
			return conflict, err
		}
	}
	failpoint.Hit(failpoint.JournalBefore, point)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, point)
	if err != nil {
		return conflict, err
	}
	return applied, nil
}

const requestCancelSQL = `
UPDATE recourse.runs SET cancel_requested = true, cancel_by = $3, cancel_reason = $4
WHERE id = $1 AND tenant = $2 AND state = 'running' AND NOT cancel_requested`

// RequestCancel marks a running run to be cancelled when its attempt ends, and writes the
// receipt with actor and reason, in one commit. It reports whether it set the mark; false
// if the run no longer runs or is marked already: then nothing is written. The mark is a
// guard of every transition that ends the attempt.
func (j *Journal) RequestCancel(ctx context.Context, run background.Run, draft receipts.Draft) (bool, error) {
	draft.Run, draft.Subtype = run.ID, receipts.CancelRequested
	err := j.InSlowPathTx(ctx, failpoint.CancelRequest, func(ctx context.Context, tx *sql.Tx) error {
		// The receipt comes first: it locks the case, and cases are locked before runs.
		if err := appendCaseReceipt(ctx, tx, run.Tenant, run.Case, draft); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, requestCancelSQL, run.ID.String(), run.Tenant, draft.Actor, draft.Payload.Reason)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); n == 1 || err != nil {
			return err
		}
		return errCancelNotMarked
	})
	if errors.Is(err, errCancelNotMarked) {
		return false, nil
	}
	return err == nil, err
}

// errCancelNotMarked rolls back the receipt of a request that came too late or repeats
// another.
var errCancelNotMarked = errors.New("journal: the run is not running or has a cancel request")
