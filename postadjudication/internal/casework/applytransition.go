package casework

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// applyWithLetterHandler commits a transition of a run. If a run dies of it, the handler of its letter is
// created in the same commit, its workers are notified, and OnDeath is called. No other function writes
// transitions of which a run may die. excess is what the change pays beyond the adjudication.
func (h *LetterHandlers) applyWithLetterHandler(ctx context.Context, j *journal.Journal, tr *background.Transition, decide journal.Decision) (after *journal.Snapshot, excess int64, _ error) {
	earlier := h.unanswered.take(tr.ID) // of an earlier try of the transition
	for withoutHandler := false; ; withoutHandler = true {
		fx := earlier // unless it is decided again
		s, err := j.CommitTransition(ctx, tr.Run.ID, tr.ID, func(s *journal.Snapshot) (ch journal.Change, err error) {
			fx = effects{}
			if s.Run.Family != tr.Run.Family {
				return ch, background.ErrNotFound // the task was forged: its family may neither call nor end the run
			}
			if ch, err = decide(s); err != nil {
				return ch, err
			}
			fx.excess = excessIn(&ch)
			if fx.dead = newlyDeadRun(&ch); fx.dead == nil || withoutHandler {
				return ch, nil
			}
			fx.handler, err = h.attachHandler(ctx, &ch, fx.dead)
			return ch, unrecordableUnlessKnown(err)
		})
		if errors.Is(err, journal.ErrHandlerExists) && !withoutHandler {
			h.Applier.Log.Error("a dead letter gets no handler: the handler's retry key is in use", zap.Stringer("run", tr.Run.ID))
			continue
		}
		if mayBeWritten(err) && h.unanswered.keep(tr.ID, fx) {
			h.Applier.Log.Error("too many transitions have an unknown result: the oldest is forgotten, and a death or excess payment in it may not be reported")
		}
		if err == nil && fx.handler != nil {
			h.Applier.NotifyRuns(ctx, fx.handler)
		}
		if err == nil && fx.dead != nil && h.OnDeath != nil {
			h.OnDeath(*fx.dead)
		}
		return s, fx.excess, err
	}
}

// mayBeWritten reports whether a transition with this error may have been written, and will be applied again. A
// run that can't be read may have it as its last one.
func mayBeWritten(err error) bool {
	return !background.WriteOutcomeKnown(err) || errors.Is(err, background.ErrUnreadable)
}

// excessIn returns how much a change pays beyond the adjudicated amount.
func excessIn(ch *journal.Change) (excess int64) {
	for i := range ch.Drafts {
		if ch.Drafts[i].Subtype == receipts.ConservationBreach {
			excess += ch.Drafts[i].Payload.Excess
		}
	}
	return excess
}

// effects are the parts of a change that are reported after its commit.
type effects struct {
	dead    *background.Run // the run that dies; may be nil
	handler *background.Run // the run that handles its letter; may be nil
	excess  int64           // paid beyond the adjudication
}

// unansweredEffects are the effects of changes that may or may not have been written, by transition. The same
// transition is applied again. If it was written it is not decided again, and its effects are read from here.
type unansweredEffects struct {
	mu   sync.Mutex
	of   map[background.TransitionID]keptEffects
	kept uint64 // how often effects were kept
}

// keptEffects are effects with the number of the call of keep.
type keptEffects struct {
	effects
	number uint64
}

// maxUnanswered bounds the effects that are kept: some transitions are not applied again.
const maxUnanswered = 1024

// keep keeps the effects of a transition. If there are too many it drops the oldest, and reports true: nobody
// is told of these.
func (u *unansweredEffects) keep(id background.TransitionID, e effects) (dropped bool) {
	if e == (effects{}) {
		return false
	}
	if e.dead != nil {
		dead := *e.dead
		dead.Payload = nil // it may be large
		e.dead = &dead
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[background.TransitionID]keptEffects{}
	}
	u.kept++
	u.of[id] = keptEffects{e, u.kept}
	if len(u.of) <= maxUnanswered {
		return false
	}
	oldest := id
	for other, e := range u.of {
		if e.number < u.of[oldest].number {
			oldest = other
		}
	}
	delete(u.of, oldest)
	return true
}

func (u *unansweredEffects) take(id background.TransitionID) effects {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.of[id]
	delete(u.of, id)
	return e.effects
}

// newlyDeadRun returns the run that dies in a change: the run of the transition, or the active run of
// its case; nil if none does.
func newlyDeadRun(ch *journal.Change) *background.Run {
	if ch.After.Run.Letter == background.LetterOpen && ch.Before.Run.Letter != background.LetterOpen {
		return &ch.After.Run
	}
	for i := range ch.Others {
		if r := &ch.Others[i]; r.After.Letter == background.LetterOpen && r.Before.Letter != background.LetterOpen {
			return &r.After
		}
	}
	return nil
}
