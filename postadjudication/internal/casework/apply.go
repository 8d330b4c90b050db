package casework

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Applier applies decisions to dead letters. What people, plans, rules and retention do with a dead letter is
// written here, and only if its case is as it was when it was decided. Only findings, and what lookups find,
// are written by SettlementFamily.
type Applier struct {
	Letters       LetterJournal
	Journal       *journal.Journal
	Engine        Engine  // set after the families exist
	Fetcher       Fetcher // set after the families exist
	Settlements   *SettlementFamily
	PlainFamilies map[string]*PlainFamily
	Sessions      *Sessions
	Refusals      *Refusals
	Archive       Archiver // nil: purged letters are not archived
	WithoutRedis  bool
	Now           func() time.Time
	Log           *zap.Logger

	// OnReceipt is called for each receipt of a dead letter that this process committed, with the letter as
	// it was before; may be nil.
	OnReceipt func(letter background.Run, subtype receipts.Subtype, actor string)
}

// ErrLetterChanged means that the letter is not as it was read or planned.
var ErrLetterChanged = errors.New("postadjudication: the letter has changed since it was read")

// errCaseChanged means that the case must be read again.
var errCaseChanged = errors.New("postadjudication: the case has changed since it was read")

// LetterJournal is what Applier reads and writes letters by. Tests put faults between it and the journal.
type LetterJournal interface {
	LetterRowsByID(ctx context.Context, ids ...background.RunID) ([]journal.LetterRow, error)
	Snapshot(ctx context.Context, id background.RunID) (journal.Snapshot, error)
	CommitTransition(ctx context.Context, id background.RunID, transition background.TransitionID, decide journal.Decision) (*journal.Snapshot, error)
	ApplyLetterBatch(ctx context.Context, changes []journal.Change) ([]bool, error)
}

// LettersOf is a journal as the LetterJournal of an Applier.
type LettersOf struct{ *journal.Journal }

// LetterRowsByID reads runs with their annotations. They need not be dead letters.
func (j LettersOf) LetterRowsByID(ctx context.Context, ids ...background.RunID) ([]journal.LetterRow, error) {
	return j.Letters.ByID(ctx, ids...)
}

// Snapshot reads a run with its case.
func (j LettersOf) Snapshot(ctx context.Context, id background.RunID) (journal.Snapshot, error) {
	return j.Cases.Snapshot(ctx, id)
}

// OpenGate returns the gate that refuses a run that is no open dead letter, or empty.
func OpenGate(s journal.Snapshot) refusal.Gate {
	switch {
	case s.Run.State != background.DeadLettered:
		return refusal.GateNotALetter
	case s.Run.Letter != background.LetterOpen:
		return refusal.GateNotOpen
	}
	return ""
}

// OpenLetter reads an open letter of a tenant with its annotations. Errors: refusal.ErrNotFound if the
// tenant has no such letter, or it was purged; *refusal.RefusedError if the run is no open letter.
func (c *Applier) OpenLetter(ctx context.Context, tenant string, id background.RunID) (journal.LetterRow, error) {
	found, err := c.Letters.LetterRowsByID(ctx, id)
	if err != nil {
		return journal.LetterRow{}, err
	}
	if len(found) == 0 {
		seen, err := c.Letters.Snapshot(ctx, id)
		// Without a row the run does not exist, or can't be read, which Snapshot reports. Else it was
		// written after the first read.
		if err = ownedBy(tenant, seen, err); err == nil {
			err = refusal.ErrNotFound
		}
		return journal.LetterRow{}, err
	}
	f := found[0]
	if tenant == "" || f.Run.Tenant != tenant || f.Run.Letter == background.LetterPurged {
		return journal.LetterRow{}, refusal.ErrNotFound
	}
	if gate := OpenGate(f.Snapshot); gate != "" {
		return f, RefusedBy(gate, f.Snapshot)
	}
	return f, nil
}

// OwnRun reads a run of a tenant, or returns refusal.ErrNotFound.
func (c *Applier) OwnRun(ctx context.Context, tenant string, id background.RunID) (journal.Snapshot, error) {
	seen, err := c.Journal.Cases.Snapshot(ctx, id)
	return seen, ownedBy(tenant, seen, err)
}

// ownedBy returns the error of a read of a run, or refusal.ErrNotFound if another tenant owns the run, also if
// that run can't be read.
func ownedBy(tenant string, seen journal.Snapshot, err error) error {
	if (err == nil || errors.Is(err, refusal.ErrUnreadable)) && (tenant == "" || seen.Run.Tenant != tenant) {
		return refusal.ErrNotFound
	}
	return err
}

// Apply reads an open letter of a tenant, calls decide, and writes the change. If the letter changes
// meanwhile, Apply does so again. A LetterDecision must be pure; here decide may also read what it needs
// besides the letter. Apply returns the letter as it was decided on, and the change that
// was written. Errors are those of OpenLetter, of the decision and of the journal.
func (c *Applier) Apply(ctx context.Context, tenant string, id background.RunID, decide LetterDecision) (f journal.LetterRow, ch journal.Change, err error) {
	for transition := NewID(); ; {
		if f, err = c.OpenLetter(ctx, tenant, id); err != nil {
			return f, ch, err
		}
		if ch, err = decide(f); err != nil {
			return f, ch, err
		}
		setTransition(&ch, transition)
		if err = c.write(ctx, f, ch); !errors.Is(err, errCaseChanged) {
			return f, ch, err
		}
	}
}

// ApplyAsRead applies a decision to a letter as it was read. The letter need not be open. It
// returns ErrLetterChanged if its case has changed since.
func (c *Applier) ApplyAsRead(ctx context.Context, f journal.LetterRow, decide LetterDecision) error {
	ch, err := decide(f)
	if err != nil {
		return err
	}
	setTransition(&ch, NewID())
	return lastTry(c.write(ctx, f, ch))
}

// setTransition sets the id of the transition in a change.
func setTransition(ch *journal.Change, id background.TransitionID) {
	ch.Transition, ch.After.Run.LastTransition = id, id
	if ch.NewRun != nil {
		ch.NewRun.LastTransition = id
	}
}

// lastTry returns the error of a write that is not tried again.
func lastTry(err error) error {
	if errors.Is(err, errCaseChanged) {
		return ErrLetterChanged
	}
	return err
}

// write writes a change of a letter, in one commit, which other changes may share. It waits for other transactions on
// the case, and returns errCaseChanged if the case is not as in f, or a *refusal.RefusedError of what
// only the commit can decide.
func (c *Applier) write(ctx context.Context, f journal.LetterRow, ch journal.Change) error {
	_, err := c.Letters.CommitTransition(ctx, f.Run.ID, ch.Transition, func(now *journal.Snapshot) (journal.Change, error) {
		if now.Case.Head != f.Case.Head { // an error of the decision ends CommitTransition
			return journal.Change{}, errCaseChanged
		}
		return ch, nil
	})
	if err == nil {
		c.reportReceipts(f, ch)
	}
	return refusedByCommit(f, err)
}

// reportReceipts calls OnReceipt for a change of a letter that was committed.
func (c *Applier) reportReceipts(f journal.LetterRow, ch journal.Change) {
	if c.OnReceipt == nil {
		return
	}
	for _, d := range ch.Drafts {
		if d.Run == f.Run.ID {
			c.OnReceipt(f.Run, d.Subtype, d.Actor)
		}
	}
}

// refusedByCommit returns the error of a write of a change of f, with the gate of a guard that the
// journal keeps.
func refusedByCommit(f journal.LetterRow, err error) error {
	switch {
	case errors.Is(err, journal.ErrFingerprintHeld):
		return RefusedBy(refusal.GateUniqueJobLive, f.Snapshot)
	case errors.Is(err, journal.ErrReturnRecorded):
		return RefusedBy(refusal.GateReferenceUsed, f.Snapshot)
	}
	return err
}

// NewID returns an id that nothing has.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// NewIDAt returns an id of what is stored, with the time at which it is made, by the clock that was measured. Rows that
// are stored one after another lie side by side in indexes, also those of machines whose clocks differ. An id says
// nothing of the order of things: any clock can be set.
func NewIDAt(at time.Time) uuid.UUID {
	id := NewID()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli())<<16)
	copy(id[:6], ms[:])
	return id
}

// TimeOrNil returns nil for the zero time.
func TimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
