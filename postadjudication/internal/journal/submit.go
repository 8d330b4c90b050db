package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Submission is a request for a run of a subject.
type Submission struct {
	Tenant  string
	Kind    Kind
	Subject string
	Run     background.RunID // of the run to create; Submit recognizes by it what its own statement has written
	// Open returns the change that opens the case, decided as if there were no case; nil: the case exists.
	Open func() (Change, error)
	// Decide returns the change of an existing case. Its error means that there is nothing
	// to change; Submit then returns the snapshot with it.
	Decide Decision
}

// Submit opens the case or changes the existing one. Without an error the snapshot is of
// the submission's run, which is now the case's active run. With an error the snapshot,
// unless it is empty, is of the case and its active run. Errors:
//   - the error of Decide;
//   - ErrExceedsHeld, ErrEscrowMismatch, ErrBusy: nothing was written but, maybe, the row of a new escrow;
//   - background.ErrUnrecordable: the same, and the same submission gets it again;
//   - any other: the outcome is unknown.
//
// If a connection is closed before the answer comes, database/sql executes the statement again on another
// connection. Then the second execution finds what the first one has written. After a connection that was reset
// nothing is repeated.
func (j *Journal) Submit(ctx context.Context, s Submission) (*Snapshot, error) {
	if s.Open == nil {
		seen, err := snapshotBySubject(ctx, j.batchDB, s.Tenant, s.Kind, s.Subject)
		if err != nil {
			return new(Snapshot), pg.Wrap(err)
		}
		return j.submitToExisting(ctx, seen, s)
	}
	change, err := s.Open()
	if err != nil {
		return new(Snapshot), err
	}
	for range openTries {
		snap, err := j.opener.openCase(ctx, change)
		if err == nil && !snap.Run.Remote { // remote runs are claimed from the database, not from this cache
			j.cacheSnapshot(snap.Run.ID, snap, true)
		}
		if !errors.Is(err, errCaseExists) {
			return snap, err
		}
		seen, err := snapshotBySubject(ctx, j.batchDB, s.Tenant, s.Kind, s.Subject)
		switch {
		case errors.Is(err, background.ErrNotFound):
			continue
		case err != nil:
			return seen, pg.Wrap(err)
		case seen.Run.ID == s.Run: // database/sql executed the statement twice, and the first execution wrote it
			return seen, nil
		}
		return j.submitToExisting(ctx, seen, s)
	}
	return new(Snapshot), fmt.Errorf("journal: case %s can be neither opened nor found", change.After.Case.ID)
}

// openTries bounds how often Submit opens a case that exists for the statement that opens it, and not for the
// one that reads it. Only a failover that loses commits, or an owner of the tables without their triggers, removes a case.
const openTries = 10

// submitToExisting submits to a case that exists. write tries a batch, and then waits once for the transaction
// that holds the case or its escrow. A conflict means that the case has changed: it is read and decided again.
func (j *Journal) submitToExisting(ctx context.Context, seen *Snapshot, s Submission) (*Snapshot, error) {
	for {
		change, err := s.Decide(seen)
		if err != nil {
			return seen, err
		}
		res, err := j.write(ctx, &change, j.opener.submitPath, lockName(&change.After.Case))
		switch {
		case err != nil:
			return seen, err
		case res == exceedsHeld:
			return seen, ErrExceedsHeld
		case res == applied:
			j.cache.Remove(seen.Run.ID)
			return newRunSnapshot(&change), nil
		case ctx.Err() != nil:
			return seen, ctx.Err()
		}
		if seen, err = snapshotBySubject(ctx, j.batchDB, s.Tenant, s.Kind, s.Subject); err != nil {
			return seen, pg.Wrap(err)
		}
		if seen.Run.ID == s.Run { // database/sql executed the statement twice
			return seen, nil
		}
	}
}

// newRunSnapshot returns the snapshot of the run that a change created.
func newRunSnapshot(change *Change) *Snapshot {
	if change.NewRun == nil {
		return change.After
	}
	return &Snapshot{Case: change.After.Case, Run: *change.NewRun}
}

// errCaseExists means that the case to open exists.
var errCaseExists = errors.New("journal: the case exists")

// opener opens cases.
type opener struct {
	*shared
	submitPath     *pg.SlowPath // submissions that wait for a lock
	opens          pg.Batcher[*chainedChange, openResult]
	wideOpenStmt   *pg.Statement
	narrowOpenStmt *pg.Statement
	openInTxStmt   *pg.Statement // wideOpenSQL on txPath
	replaceStmt    *pg.Statement // wideTransitionSQL on txPath, which waits for locked rows
	holdersStmt    *pg.Statement // holdersSQL on txPath
	turns          submissionTurns
	knownEscrows   *escrowCache
}

// maxBatchedPayload bounds the payload of a run whose case shares a statement with others. A larger one
// is opened alone, so that a batch stays small.
const maxBatchedPayload = 64 << 10

func (o *opener) openCase(ctx context.Context, change Change) (*Snapshot, error) {
	ch, err := chainForCaller(ctx, &change)
	if err != nil {
		return new(Snapshot), unrecordable(err)
	}
	open := o.opens.Do
	if len(change.After.Run.Payload) > maxBatchedPayload {
		open = func(ch *chainedChange) (openResult, error) { return o.openAlone(ctx, ch) }
	}
	opened, err := open(ch)
	if err == nil && (opened.result == conflict || opened.result == deferred) {
		opened, err = o.openWithRetry(ctx, ch, opened)
	}
	if err == nil && opened.result == escrowMismatch {
		var corrected bool
		if corrected, err = correctUnusedEscrow(ctx, o.batchDB, change.After.Case.Tenant, change.OpeningEscrow); err == nil && corrected {
			opened, err = o.openWithRetry(ctx, ch, openResult{result: deferred}) // deferred: it opens it again in a batch, and waits for no lock
		}
	}
	if err != nil {
		return new(Snapshot), err
	}
	if opened.result == exceedsHeld || opened.result == escrowMismatch {
		// The subject is searched in the statement's snapshot, but the escrow is read as it is when it is
		// locked. A case that was committed between counts in the escrow and is not found.
		if err := o.checkAbsent(ctx, o.batchDB, change.After.Case); err != nil {
			return new(Snapshot), err
		}
	}
	return openOutcome(ch, opened)
}

// checkAbsent searches a case in a statement, and so a snapshot, of its own. It returns
// errCaseExists if it finds the case.
func (o *opener) checkAbsent(ctx context.Context, q pg.Querier, c Case) error {
	switch seen, err := snapshots(ctx, q, bySubjectSQL, c.Tenant, string(c.Kind), c.Subject); {
	case err != nil:
		return pg.Wrap(err)
	case len(seen) > 0:
		return errCaseExists
	}
	return nil
}

// openOutcome returns the snapshot of a case that was opened, or the error.
func openOutcome(ch *chainedChange, opened openResult) (*Snapshot, error) {
	switch opened.result {
	case applied:
		after := ch.After
		after.Case.Escrow = opened.escrow
		return after, nil
	case caseExists:
		return new(Snapshot), errCaseExists
	case exceedsHeld:
		return new(Snapshot), ErrExceedsHeld
	case escrowMismatch:
		return new(Snapshot), ErrEscrowMismatch
	}
	return new(Snapshot), ErrBusy
}

// openWithRetry opens a case whose subject or escrow another transaction has locked. It waits for each lock,
// LockTimeout at most, and begins no round once LockTimeout is over. One row per escrow waits at a time. It
// also opens a deferred row again, which did not fit into its escrow after others of its batch.
func (o *opener) openWithRetry(ctx context.Context, ch *chainedChange, opened openResult) (openResult, error) {
	if _, err := o.recreateEscrow(ctx, ch); err != nil { // the conflict may be an escrow that is missing
		return openResult{}, unrecordableOrWrapped(err)
	}
	reopen := func() (res result, err error) {
		opened, err = o.opens.Do(ch)
		return opened.result, err
	}
	for deadline := time.Now().Add(pg.LockTimeout); ; {
		var err error
		if opened.result == deferred {
			_, err = reopen()
		} else {
			// The first waiter for a lock waits alone. Once that one has the lock, the others call reopen, which shares a batch.
			_, err = pg.WaitForLock(ctx, o.submitPath, lockName(&ch.After.Case), reopen, func() (res result, err error) {
				if opened, err = o.openWaiting(ctx, ch); err == nil && opened.result == exceedsHeld {
					return reopen() // its snapshot does not show what was freed while it waited
				}
				return opened.result, err
			})
		}
		if err != nil {
			return openResult{}, err
		}
		if opened.result != conflict && opened.result != deferred || time.Now().After(deadline) {
			return opened, nil
		}
	}
}

// openAlone opens a case in a statement of its own.
func (o *opener) openAlone(ctx context.Context, ch *chainedChange) (openResult, error) {
	if !o.submitPath.Acquire(ctx) {
		return openResult{}, ErrBusy
	}
	defer o.submitPath.Release()
	return o.openWaiting(ctx, ch)
}

func (o *opener) openWaiting(ctx context.Context, ch *chainedChange) (openResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	defer o.SignalCommitted()
	opened, err := applyWideOpen(ctx, o.submitPath.DB, withSubjectLock(wideOpenSQL), ch)
	switch {
	case pg.IsContention(err):
		return openResult{}, ErrBusy
	case err != nil:
		return openResult{}, unrecordableOrWrapped(err)
	}
	return opened, nil
}

// lockName returns the name of the lock that a submission waits for: that of its escrow, or that of its case
// if it has no escrow.
func lockName(c *Case) string {
	if c.Reference == "" {
		return "case " + c.Tenant + "\x1f" + string(c.Kind) + "\x1f" + c.Subject
	}
	return "escrow " + c.Tenant + "\x1f" + c.Reference
}

// SubmitTx is Submit inside the caller's transaction: it is written if and only if that
// commits. It does not wait for the rows of another transaction: if one is locked it returns ErrBusy, and the
// caller's transaction goes on. Only the escrow of a new case may be inserted after a wait, outside of the
// caller's transaction. After an error that Postgres returned, such as of a value that it refuses, the
// transaction is aborted and can only be rolled back. Where CheckTx returns an error, SubmitTx returns it and
// executes nothing more. s.Open must not be nil.
func (j *Journal) SubmitTx(ctx context.Context, tx *sql.Tx, s Submission) (*Snapshot, error) {
	if err := j.Database.CheckTx(ctx, tx); err != nil {
		return new(Snapshot), err
	}
	change, err := s.Open()
	if err != nil {
		return new(Snapshot), err
	}
	snap, err := j.opener.openTx(ctx, tx, tx, change)
	if !errors.Is(err, errCaseExists) {
		return snap, err
	}
	seen, err := snapshotBySubject(ctx, tx, s.Tenant, s.Kind, s.Subject)
	if errors.Is(err, background.ErrNotFound) {
		return new(Snapshot), ErrBusy
	}
	if err != nil {
		return new(Snapshot), pg.Wrap(err)
	}
	change, err = s.Decide(seen)
	if err != nil {
		return seen, err
	}
	ch, err := chainForCaller(ctx, &change)
	if err != nil {
		return seen, unrecordable(err)
	}
	if err := checkMayChange(ctx, tx); err != nil {
		return seen, err
	}
	switch res, err := applyWideTransition(ctx, tx, withSkipLocked(wideTransitionSQL), ch); {
	case err != nil:
		return seen, pg.Wrap(err)
	case res == exceedsHeld:
		return seen, ErrExceedsHeld
	case res != applied:
		return seen, ErrBusy
	}
	return newRunSnapshot(&change), nil
}

// checkMayChange returns nil if the role of the transaction may change cases that exist. A statement that is refused for lack
// of a privilege would abort the caller's transaction.
func checkMayChange(ctx context.Context, tx *sql.Tx) error {
	var may bool
	if err := tx.QueryRowContext(ctx, `SELECT has_table_privilege('recourse.runs', 'UPDATE')`).Scan(&may); err != nil {
		return pg.Wrap(err)
	}
	if !may {
		return fmt.Errorf("journal: the case exists: %w", stored.ErrSubmitRole)
	}
	return nil
}

// openTx opens a case in a transaction, by open: the transaction itself, or wideOpenSQL prepared in it.
func (o *opener) openTx(ctx context.Context, tx *sql.Tx, open pg.Querier, change Change) (*Snapshot, error) {
	ch, err := chainForCaller(ctx, &change)
	if err != nil {
		return new(Snapshot), unrecordable(err)
	}
	if _, err := o.ensureEscrows(ctx, []*chainedChange{ch}); err != nil {
		return new(Snapshot), unrecordableOrWrapped(err)
	}
	opened, err := applyWideOpen(ctx, open, withTryLock(wideOpenSQL), ch)
	retry := false
	switch {
	case err != nil:
	case opened.result == escrowMismatch:
		// The opening statement has locked the escrow for this transaction, so only this
		// transaction can correct it now.
		retry, err = correctUnusedEscrow(ctx, tx, change.After.Case.Tenant, change.OpeningEscrow)
	case opened.result == conflict:
		retry, err = o.recreateEscrow(ctx, ch)
	}
	if err == nil && retry {
		opened, err = applyWideOpen(ctx, open, withTryLock(wideOpenSQL), ch)
	}
	if err != nil {
		return new(Snapshot), unrecordableOrWrapped(err)
	}
	if res := opened.result; res == exceedsHeld || res == escrowMismatch {
		if err := o.checkAbsent(ctx, tx, change.After.Case); err != nil {
			return new(Snapshot), err
		}
	}
	return openOutcome(ch, opened)
}
