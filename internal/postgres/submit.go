package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// Submission asks for a run of a subject.
type Submission struct {
	Tenant  string
	Kind    Kind
	Subject string
	Run     background.RunID // of the run to be made; recognised when a commit was ambiguous
	// Open gives the change that opens the case, decided as if there were none.
	Open func() (Change, error)
	// Decide gives the change of a case that exists. Its error says that there is
	// nothing to change, and the snapshot is the answer.
	Decide Decide
}

// Submit opens the case or changes the existing one. Without an error the snapshot is
// of the run of the submission, which now holds the case. With one the snapshot, unless
// it is empty, shows who holds the case, and the error says why the submission did not
// enter.
// Errors: what Decide refused with, ErrExceedsHeld, ErrEscrowMismatch, ErrBusy.
// Any other error leaves it unknown whether it was written; ask again with the
// same run id.
func (j *Journal) Submit(ctx context.Context, s Submission) (*Snapshot, error) {
	opening, err := s.Open()
	if err != nil {
		return new(Snapshot), err
	}
	for range openTries {
		snap, err := j.openCase(ctx, opening, func(row *sealed) (opened, error) { return j.opens.do(row) })
		if err == nil {
			j.recent.Add(snap.Run.ID, snap)
		}
		if !errors.Is(err, errExists) {
			return snap, err
		}
		seen, err := ofSubject(ctx, j.hot, s.Tenant, s.Kind, s.Subject)
		switch {
		case errors.Is(err, background.ErrNotFound):
			continue
		case err != nil:
			return seen, unavailable(err)
		case seen.Run.ID == s.Run:
			return seen, nil
		}
		return j.change(ctx, seen, s)
	}
	return new(Snapshot), fmt.Errorf("postgres: case %s can be neither opened nor found", opening.After.Case.ID)
}

// openTries bounds the search for a case that could not be opened because it
// exists, and could not be read because it does not: it may have been rolled back
// in between, but not for ever.
const openTries = 10

// change submits to a case that exists.
func (j *Journal) change(ctx context.Context, seen *Snapshot, s Submission) (*Snapshot, error) {
	for {
		ch, err := s.Decide(seen)
		if err != nil {
			return seen, err
		}
		v, err := j.first(ctx, &ch)
		if v == lost && err == nil {
			v, err = j.attempt(ctx, &ch, func(row *sealed) (verdict, error) {
				return j.writeBehind(ctx, j.openLane, lockedBy(&row.After.Case), row)
			})
		}
		switch {
		case err != nil:
			return seen, err
		case v == overHeld:
			return seen, ErrExceedsHeld
		case v == written:
			j.recent.Remove(seen.Run.ID)
			return begun(&ch), nil
		case ctx.Err() != nil:
			return seen, ctx.Err()
		}
		if seen, err = ofSubject(ctx, j.hot, s.Tenant, s.Kind, s.Subject); err != nil {
			return seen, unavailable(err)
		}
		if seen.Run.ID == s.Run {
			return seen, nil
		}
	}
}

// begun is the snapshot of the run that a change began.
func begun(ch *Change) *Snapshot {
	if ch.New == nil {
		return ch.After
	}
	return &Snapshot{Case: ch.After.Case, Run: *ch.New}
}

// errExists tells that the case to be opened is there already.
var errExists = errors.New("postgres: the case exists")

func (j *Journal) openCase(ctx context.Context, ch Change, do func(*sealed) (opened, error)) (*Snapshot, error) {
	row, err := seal(&ch)
	if err != nil {
		return new(Snapshot), err
	}
	o, err := do(row)
	if err == nil && (o.verdict == lost || o.verdict == crowded) {
		o, err = j.openAlone(ctx, row, o)
	}
	if err == nil && o.verdict == mismatched {
		var corrected bool
		if corrected, err = correctEscrow(ctx, j.hot, ch.After.Case.Tenant, ch.Opens); err == nil && corrected {
			o, err = j.openAlone(ctx, row, opened{verdict: crowded})
		}
	}
	if err != nil {
		return new(Snapshot), err
	}
	if o.verdict == overHeld || o.verdict == mismatched {
		// What commits while this statement waits for the subject is in the escrow that
		// it reads, but not in the snapshot that it looks for the subject in.
		if err := j.absent(ctx, j.hot, ch.After.Case); err != nil {
			return new(Snapshot), err
		}
	}
	return openedAs(row, o)
}

// absent looks for a case in a statement, and so a snapshot, of its own: errExists
// when it is there.
func (j *Journal) absent(ctx context.Context, q querier, c Case) error {
	switch seen, err := snapshots(ctx, q, bySubjectSQL, c.Tenant, string(c.Kind), c.Subject); {
	case err != nil:
		return unavailable(err)
	case len(seen) > 0:
		return errExists
	}
	return nil
}

// openedAs is the snapshot of a case that was opened, or why it was not.
func openedAs(row *sealed, o opened) (*Snapshot, error) {
	switch o.verdict {
	case written:
		after := row.After
		after.Case.Escrow = o.escrow
		return after, nil
	case alreadyThere:
		return new(Snapshot), errExists
	case overHeld:
		return new(Snapshot), ErrExceedsHeld
	case mismatched:
		return new(Snapshot), ErrEscrowMismatch
	}
	return new(Snapshot), ErrBusy
}

// openAlone opens a case whose subject or escrow another transaction holds: it
// waits for it, two seconds at most, as one of its escrow at a time. It also decides
// again what did not fit into its escrow behind others of its batch.
func (j *Journal) openAlone(ctx context.Context, row *sealed, o opened) (opened, error) {
	if _, err := j.renameEscrow(ctx, row); err != nil {
		return opened{}, unavailable(err)
	}
	again := func() (v verdict, err error) {
		o, err = j.opens.do(row)
		return o.verdict, err
	}
	for over := time.Now().Add(laneWait); ; {
		var err error
		if o.verdict == crowded {
			_, err = again()
		} else {
			_, err = j.openLane.behind(ctx, lockedBy(&row.After.Case), again, func() (v verdict, err error) {
				if o, err = j.openWaiting(ctx, row); err == nil && o.verdict == overHeld {
					return again() // what was freed while it waited is not in what it saw
				}
				return o.verdict, err
			})
		}
		if err != nil {
			return opened{}, err
		}
		if o.verdict != lost && o.verdict != crowded || time.Now().After(over) {
			return o, nil
		}
	}
}

func (j *Journal) openWaiting(ctx context.Context, row *sealed) (opened, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	defer j.announce()
	out, err := applyOpens(ctx, j.openLane.db, locking(openSQL), []*sealed{row})
	if err != nil {
		return opened{}, contended(err)
	}
	return out[0], nil
}

// lockedBy names what a transaction that is open for a submission keeps from others: its
// escrow, or a case that has none.
func lockedBy(c *Case) string {
	if c.Reference == "" {
		return "case " + c.Tenant + "\x1f" + string(c.Kind) + "\x1f" + c.Subject
	}
	return "escrow " + c.Tenant + "\x1f" + c.Reference
}

// SubmitTx is Submit inside the caller's transaction: it is written if and only if
// that commits. It never waits for another transaction and never fails the
// caller's: a row that another holds is answered ErrBusy. The transaction must be
// READ COMMITTED, else ErrIsolation and nothing was asked of it.
func (j *Journal) SubmitTx(ctx context.Context, tx *sql.Tx, s Submission) (*Snapshot, error) {
	if err := readCommitted(ctx, tx); err != nil {
		return new(Snapshot), err
	}
	opening, err := s.Open()
	if err != nil {
		return new(Snapshot), err
	}
	snap, err := j.openTx(ctx, tx, opening)
	if !errors.Is(err, errExists) {
		return snap, err
	}
	seen, err := ofSubject(ctx, tx, s.Tenant, s.Kind, s.Subject)
	if errors.Is(err, background.ErrNotFound) {
		return new(Snapshot), ErrBusy
	}
	if err != nil {
		return new(Snapshot), unavailable(err)
	}
	ch, err := s.Decide(seen)
	if err != nil {
		return seen, err
	}
	v, err := j.attempt(ctx, &ch, func(row *sealed) (verdict, error) {
		vs, err := applyMoves(ctx, tx, skipping(moveSQL), []*sealed{row})
		if err != nil {
			return lost, unavailable(err)
		}
		return vs[0], nil
	})
	switch {
	case err != nil:
		return seen, err
	case v == overHeld:
		return seen, ErrExceedsHeld
	case v != written:
		return seen, ErrBusy
	}
	return begun(&ch), nil
}

func (j *Journal) openTx(ctx context.Context, tx *sql.Tx, ch Change) (*Snapshot, error) {
	row, err := seal(&ch)
	if err != nil {
		return new(Snapshot), err
	}
	if _, err := j.ensureEscrows(ctx, []*sealed{row}); err != nil {
		return new(Snapshot), unavailable(err)
	}
	o, err := openOnce(ctx, tx, row)
	again := false
	switch {
	case err != nil:
	case o.verdict == mismatched:
		// The opening statement has locked the escrow for this transaction, which alone can
		// correct it now.
		again, err = correctEscrow(ctx, tx, ch.After.Case.Tenant, ch.Opens)
	case o.verdict == lost:
		again, err = j.renameEscrow(ctx, row)
	}
	if err == nil && again {
		o, err = openOnce(ctx, tx, row)
	}
	if err != nil {
		return new(Snapshot), unavailable(err)
	}
	if v := o.verdict; v == overHeld || v == mismatched {
		if err := j.absent(ctx, tx, ch.After.Case); err != nil {
			return new(Snapshot), err
		}
	}
	return openedAs(row, o)
}

// openOnce opens a case in the caller's transaction, without waiting.
func openOnce(ctx context.Context, tx *sql.Tx, row *sealed) (opened, error) {
	out, err := applyOpens(ctx, tx, trying(openSQL), []*sealed{row})
	if err != nil {
		return opened{}, err
	}
	return out[0], nil
}

func readCommitted(ctx context.Context, tx *sql.Tx) error {
	var level string
	if err := tx.QueryRowContext(ctx, `SELECT current_setting('transaction_isolation')`).Scan(&level); err != nil {
		return unavailable(err)
	}
	if level != "read committed" && level != "read uncommitted" {
		return ErrIsolation
	}
	return nil
}
