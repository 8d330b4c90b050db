package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
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

const requestCancelSQL = `
UPDATE recourse.runs SET cancel_asked = true, cancel_by = $3, cancel_reason = $4
WHERE id = $1 AND tenant = $2 AND state = 'running' AND NOT cancel_asked`

// RequestCancel marks a running run as one to be cancelled when its attempt ends, with the
// receipt of who asked and why, in one commit. It reports whether the mark is new; it is
// not, and nothing is written, when the run no longer runs or when somebody asked before.
// The mark is a guard of every move that ends the attempt.
func (j *Journal) RequestCancel(ctx context.Context, run background.Run, draft receipts.Draft) (bool, error) {
	draft.Run, draft.Subtype = run.ID, receipts.CancelRequested
	err := j.inSlowPathTx(ctx, failpoint.CancelRequest, func(ctx context.Context, tx *sql.Tx) error {
		// The receipt first: it locks the case, which comes before its runs.
		if err := appendCaseReceipt(ctx, tx, run.Tenant, run.Case, draft); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, requestCancelSQL, run.ID.String(), run.Tenant, draft.Actor, draft.Payload.Reason)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); n == 1 || err != nil {
			return err
		}
		return errCancelNotMarked
	})
	if errors.Is(err, errCancelNotMarked) {
		return false, nil
	}
	return err == nil, err
}

// errCancelNotMarked takes back the receipt of a request that came too late, or second.
var errCancelNotMarked = errors.New("postgres: no attempt of the run can be asked to be the last")

// Decision gives the change that a move makes of a case as it is, or the reason why
// it makes none. It is called again whenever the case has moved on meanwhile, so
// it must be pure. What it is given is others' as well: it must not change it, nor
// keep it but as the Before of its change.
type Decision func(*Snapshot) (Change, error)

// Apply makes one move of a run: it decides on what was last seen of the case,
// writes the change with its receipts in one commit, and decides again on the
// newest state when the case has moved on. A move that is already written is
// answered with the run as it is. It returns what Decide refused with, together
// with the run as it is now.
//
// When it returns any other error the outcome is not known: the same move may be
// applied again.
func (j *Journal) Apply(ctx context.Context, id background.RunID, transition background.TransitionID, decide Decision) (*Snapshot, error) {
	current, cached := j.cache.Get(id)
	for {
		if !cached {
			found, err := j.finds.do(id)
			if current = &found; err != nil {
				return current, err
			}
			if current.Run.LastTransition == transition {
				return current, nil
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
		res, err := j.writeWithoutWaiting(ctx, &change)
		if res == conflict && err == nil && !cached {
			if err = j.conflictReason(ctx, &change); err == nil {
				res, err = j.writeWaiting(ctx, &change)
			}
			if res == conflict && err == nil {
				err = j.conflictReason(ctx, &change)
			}
		}
		j.cacheSnapshot(id, change.After, res == applied)
		switch {
		case err != nil:
			return current, err
		case res == applied:
			return change.After, nil
		case res == insufficient:
			return current, ErrExceedsHeld
		case ctx.Err() != nil:
			return current, ctx.Err()
		}
		cached = false
	}
}

// writeWithoutWaiting writes a change without waiting for any transaction, in company if it may be.
func (j *Journal) writeWithoutWaiting(ctx context.Context, ch *Change) (result, error) {
	return j.chainAndWrite(ctx, ch, func(s *chainedChange) (result, error) { return j.tryWrite(ctx, s) })
}

func (j *Journal) tryWrite(ctx context.Context, s *chainedChange) (result, error) {
	switch {
	case s.SideEffect == nil:
		return j.transitions.do(s)
	case s.batchable():
		return j.deaths.do(s)
	case !j.txPath.acquire(ctx):
		return conflict, ErrBusy
	}
	defer j.txPath.release()
	return singleResult(j.applyWithSideEffect(ctx, j.txPath, withSkipLocked(transitionSQL), s))
}

// singleResult is what became of a change that was written alone.
func singleResult(res result, err error) (result, error) {
	switch {
	case isContention(err):
		return conflict, ErrBusy
	case err != nil:
		return conflict, unrecordableOrUnavailable(err)
	}
	return res, nil
}

// chainAndWrite seals a change, which puts the new head into it, and hands it over.
func (j *Journal) chainAndWrite(ctx context.Context, ch *Change, write func(*chainedChange) (result, error)) (result, error) {
	markSelfDeclared(ctx, ch.Drafts)
	chained, err := chain(ch)
	if err != nil {
		return conflict, unrecordable(err)
	}
	return write(chained)
}

// writeWaiting writes a change that lost its guard though it was decided on what
// had just been read: another transaction may hold the row, so this one waits, as
// one of its case at a time.
func (j *Journal) writeWaiting(ctx context.Context, ch *Change) (result, error) {
	return j.chainAndWrite(ctx, ch, func(s *chainedChange) (result, error) {
		return j.writeSerialized(ctx, j.transitionPath, s.After.Case.ID.String(), s)
	})
}

// writeSerialized writes a change behind the transaction that holds its rows.
func (j *Journal) writeSerialized(ctx context.Context, path *slowPath, name string, s *chainedChange) (result, error) {
	return path.serialize(ctx, name, func() (result, error) { return j.tryWrite(ctx, s) }, func() (result, error) {
		return singleResult(j.applyWithSideEffect(ctx, path, withLockWait(transitionSQL), s))
	})
}

// cacheSnapshot keeps what a case looks like after our own move, as a hint for the
// next one, and forgets it when the hint has proved wrong or the run has ended.
func (j *Journal) cacheSnapshot(id background.RunID, after *Snapshot, ok bool) {
	if ok && after.Run.State.Live() {
		j.cache.Add(id, after)
		return
	}
	j.cache.Remove(id)
}

// conflictReason names the guard that a claim may lose though its case stands still.
func (j *Journal) conflictReason(ctx context.Context, ch *Change) error {
	if !ch.isClaim() {
		return nil
	}
	alive, err := j.sessionAlive(ctx, ch.After.Run.Session)
	switch {
	case err != nil:
		return unavailable(err)
	case !alive:
		return background.ErrSessionLost
	}
	blocked, err := j.blockedByBreaker(ctx, ch.After.Run.ID)
	switch {
	case err != nil:
		return unavailable(err)
	case blocked:
		return background.ErrBreakerOpen
	}
	return nil
}

type selfDeclaredKey struct{}

// WithSelfDeclared gives a context in which every receipt that is written says that the actor is
// whoever typed the name.
func WithSelfDeclared(ctx context.Context) context.Context {
	return context.WithValue(ctx, selfDeclaredKey{}, true)
}

func markSelfDeclared(ctx context.Context, drafts []receipts.Draft) {
	if ctx.Value(selfDeclaredKey{}) == nil {
		return
	}
	for i := range drafts {
		drafts[i].Payload.SelfDeclared = true
	}
}
