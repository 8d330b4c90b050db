package postadjudication

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// cases applies decisions to dead letters. All that people, plans, rules and retention do with a
// dead letter is written here, and only if its case is as it was when it was decided.
type cases struct {
	journal      letterJournal
	manager      *background.Manager // set after the families exist
	archive      archiver            // nil: purged letters are not archived
	withoutRedis bool
	log          *zap.Logger
}

// letterJournal is what cases uses of the journal.
type letterJournal interface {
	LetterRowsByID(ctx context.Context, ids ...background.RunID) ([]journal.LetterRow, error)
	Snapshot(ctx context.Context, id background.RunID) (journal.Snapshot, error)
	Apply(ctx context.Context, id background.RunID, transition background.TransitionID, decide journal.Decision) (*journal.Snapshot, error)
	ApplyLetterBatch(ctx context.Context, changes []journal.Change) ([]bool, error)
}

// lettersOf is a journal as cases uses it.
type lettersOf struct{ *journal.Journal }

func (j lettersOf) LetterRowsByID(ctx context.Context, ids ...background.RunID) ([]journal.LetterRow, error) {
	return j.Letters.ByID(ctx, ids...)
}

func (j lettersOf) Snapshot(ctx context.Context, id background.RunID) (journal.Snapshot, error) {
	return j.Cases.Snapshot(ctx, id)
}

// openLetter reads an open letter of a tenant with its annotations. Errors: ErrNotFound if the
// tenant has no such letter, or it was purged; *RefusedError if the letter is not open.
func (c *cases) openLetter(ctx context.Context, tenant string, id background.RunID) (journal.LetterRow, error) {
	found, err := c.journal.LetterRowsByID(ctx, id)
	if err != nil {
		return journal.LetterRow{}, err
	}
	if len(found) == 0 {
		seen, err := c.journal.Snapshot(ctx, id)
		if err = ownedBy(tenant, seen, err); err == nil { // it was written just now
			err = ErrNotFound
		}
		return journal.LetterRow{}, err
	}
	f := found[0]
	if tenant == "" || f.Run.Tenant != tenant || f.Run.Letter == background.LetterPurged {
		return journal.LetterRow{}, ErrNotFound
	}
	if gate := annotationGate(f, ""); gate != "" {
		return f, refusedBy(gate, f.Snapshot)
	}
	return f, nil
}

// apply applies a decision to an open letter of a tenant, and decides again if the letter
// changes meanwhile. It returns the letter as it was decided on, and the change that was
// written. Errors are those of openLetter, of the decision and of the journal.
func (c *cases) apply(ctx context.Context, tenant string, id background.RunID, decide decision) (f journal.LetterRow, ch journal.Change, err error) {
	for transition := newID(); ; {
		f, err = c.openLetter(ctx, tenant, id)
		if err != nil || f.Run.LastTransition == transition { // an earlier try is written
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

// applyAsRead applies a decision to a letter as it was read. The letter need not be open. It
// returns errLetterChanged if its case has changed since.
func (c *cases) applyAsRead(ctx context.Context, f journal.LetterRow, decide decision) error {
	ch, err := decide(f)
	if err != nil {
		return err
	}
	setTransition(&ch, newID())
	return lastTry(c.write(ctx, f, ch))
}

// lastTry returns the error of a write that is not tried again.
func lastTry(err error) error {
	if errors.Is(err, errCaseChanged) {
		return errLetterChanged
	}
	return err
}

// write writes a change of a letter, in a commit of its own. It waits for other transactions on
// the case, and returns errCaseChanged if the case is not as in f.
func (c *cases) write(ctx context.Context, f journal.LetterRow, ch journal.Change) error {
	_, err := c.journal.Apply(ctx, f.Run.ID, ch.Transition, func(now *journal.Snapshot) (journal.Change, error) {
		if now.Case.Head != f.Case.Head {
			return journal.Change{}, errCaseChanged
		}
		return ch, nil
	})
	return err
}

// notifyRuns notifies workers of runs that were just committed.
func (c *cases) notifyRuns(ctx context.Context, created ...*background.Run) {
	if c.withoutRedis {
		return
	}
	for _, r := range created {
		c.manager.NotifyAsync(ctx, *r)
	}
}
