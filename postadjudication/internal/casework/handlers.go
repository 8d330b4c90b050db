package casework

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// HandlerKeyPrefix begins the retry key of a run that handles a dead letter; the id of the dead
// run follows. No other task may have such a key.
const HandlerKeyPrefix = "dlq:"

// HandledRun returns the run whose letter r handles. Forks of r handle it too.
func HandledRun(r background.Run) (letter background.RunID, ok bool) {
	text, found := strings.CutPrefix(r.RetryKey, HandlerKeyPrefix)
	if !found || r.Family == Family {
		return letter, false
	}
	letter, err := receipts.ParseRunID(text)
	return letter, err == nil
}

// Handlers creates the run that handles a letter in the commit in which the letter's run
// dies: it exists exactly once, whatever happens to this process.
//
//	family.Record ──▶ decide: the run dies ──▶ with a handler ──▶ one commit ──▶ notification
type Handlers struct {
	Cases     *Applier
	FamilyFor map[string]string // the handler's family, by the family of the dead run
	// Open returns the change that opens the case of the run that handles a dead letter. It is called
	// within the decision, since only that shows which run dies and of which tenant. Its
	// ids and time are new in each call, and the policy is the cached one, which it reads again
	// when that is old; if it can't be read, the last known one stays. Only the last change is
	// written.
	Open func(ctx context.Context, family *PlainFamily, dead journal.Snapshot) (journal.Change, error)
}

// applyWithHandler commits a transition of a run, and creates the handler if the run dies of it.
func (h *Handlers) applyWithHandler(ctx context.Context, j *journal.Journal, m background.Transition, decide journal.Decision) (*journal.Snapshot, error) {
	if h == nil || len(h.FamilyFor) == 0 {
		return j.Apply(ctx, m.Run.ID, m.ID, decide)
	}
	for handled := false; ; handled = true {
		var handlerRun *background.Run
		s, err := j.Apply(ctx, m.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
			handlerRun = nil
			ch, err := decide(s)
			if err != nil || handled {
				return ch, err
			}
			ch, err = h.attachHandler(ctx, ch, &handlerRun)
			return ch, unrecordableUnlessAnswered(err)
		})
		if errors.Is(err, journal.ErrHandlerExists) && !handled {
			h.Cases.Log.Error("a dead letter gets no handler: the handler's retry key is in use", zap.Stringer("run", m.Run.ID))
			continue
		}
		if err == nil && handlerRun != nil {
			h.Cases.NotifyRuns(ctx, handlerRun)
		}
		return s, err
	}
}

// unrecordableUnlessAnswered marks an unexpected error of a decision as ErrUnrecordable: it is
// about the values of the transition, so that a retry would not help.
func unrecordableUnlessAnswered(err error) error {
	if err == nil || background.WriteOutcomeKnown(err) || errors.Is(err, errCaseRunsStale) {
		return err
	}
	return fmt.Errorf("%w: %w", background.ErrUnrecordable, err)
}

// newlyDeadRun returns the run that dies in a change, if one does: the run of the transition,
// or the active run of its case.
func newlyDeadRun(ch *journal.Change) (deadRun background.Run, found bool) {
	if ch.After.Run.Letter == background.LetterOpen && ch.Before.Run.Letter != background.LetterOpen {
		return ch.After.Run, true
	}
	for i := range ch.Others {
		if r := &ch.Others[i]; r.After.Letter == background.LetterOpen && r.Before.Letter != background.LetterOpen {
			return r.After, true
		}
	}
	return deadRun, false
}

// attachHandler adds the handler to a change in which a run dies. A run that handles a
// letter gets no handler itself, so that there is no loop.
func (h *Handlers) attachHandler(ctx context.Context, ch journal.Change, handlerRun **background.Run) (journal.Change, error) {
	deadRun, found := newlyDeadRun(&ch)
	if !found {
		return ch, nil
	}
	family := h.Cases.PlainFamilies[h.FamilyFor[deadRun.Family]]
	if _, is := HandledRun(deadRun); is || family == nil {
		return ch, nil
	}
	opening, err := h.Open(ctx, family, journal.Snapshot{Case: ch.After.Case, Run: deadRun})
	if err != nil {
		return ch, err
	}
	run := opening.After.Run
	for i, d := range ch.Drafts {
		if d.Subtype == receipts.DeadLettered && d.Run == deadRun.ID {
			ch.Drafts[i].Payload.NewRun = run.ID
		}
	}
	ch.SideEffect, *handlerRun = journal.Handler{Letter: deadRun.ID, Opens: opening}, &run
	return ch, nil
}
