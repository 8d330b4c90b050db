package casework

import (
	"context"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// HandlerKeyPrefix begins the retry key of a run that handles a dead letter; the id of the dead
// run follows. No other task may have such a key.
const HandlerKeyPrefix = "dlq:"

// LetterHandledBy returns the run whose letter r handles. Forks of r handle it too.
func LetterHandledBy(r background.Run) (letter background.RunID, ok bool) {
	text, found := strings.CutPrefix(r.RetryKey, HandlerKeyPrefix)
	if !found || r.Family == Family {
		return letter, false
	}
	letter, err := receipts.ParseRunID(text)
	return letter, err == nil
}

// LetterHandlers creates the run that handles a letter in the commit in which the letter's run
// dies: it exists exactly once, whatever happens to this process.
//
//	family.Record ──▶ decide: the run dies ──▶ with a handler ──▶ one commit ──▶ notification
type LetterHandlers struct {
	Applier   *Applier
	FamilyFor map[string]string // the handler's family, by the family of the dead run
	// Open returns the change that opens the case of the run that handles a dead letter, with new ids. It is
	// called within the decision about the transition, since only that shows which run dies and of which
	// tenant. So it may be called several times, and only the last change is written. It must not fail for a
	// policy that can't be read now: the last known one is used.
	Open func(ctx context.Context, family *PlainFamily, dead journal.Snapshot) (journal.Change, error)
	// OnDeath is called once for each death, after its commit, also if that was answered only at a later try. It
	// is not called if the process dies after the commit. It may be nil, and must not block.
	OnDeath func(dead background.Run)

	unanswered unansweredEffects
}

// attachHandler adds to a change the handler of the run that dies in it, and returns the handler; nil
// without one. A run that handles a letter gets no handler itself, so that there is no loop.
func (h *LetterHandlers) attachHandler(ctx context.Context, ch *journal.Change, dead *background.Run) (*background.Run, error) {
	name := h.FamilyFor[dead.Family]
	if _, is := LetterHandledBy(*dead); is || name == "" {
		return nil, nil
	}
	family := h.Applier.PlainFamilies[name]
	if family == nil {
		return nil, nil
	}
	opening, err := h.Open(ctx, family, journal.Snapshot{Case: ch.After.Case, Run: *dead})
	if err != nil {
		return nil, err
	}
	run := opening.After.Run
	nameHandler(ch.Drafts, dead.ID, run.ID)
	ch.SideEffect = journal.LetterHandler{Letter: dead.ID, Opens: opening}
	return &run, nil
}

// nameHandler names the handler of a letter in the receipt of its run's death.
func nameHandler(drafts []receipts.Draft, dead, handler background.RunID) {
	for i, d := range drafts {
		if d.Subtype == receipts.DeadLettered && d.Run == dead {
			drafts[i].Payload.NewRun = handler
		}
	}
}
