package casework

import (
	"context"
	"errors"
	"strings"
	"sync"

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
	// may be nil, and must not block.
	OnDeath func(dead background.Run)

	unanswered unansweredEffects
}

// applyWithLetterHandler commits a transition of a run. If a run dies of it, the handler of its letter is
// created in the same commit, its workers are notified, and OnDeath is called. No other function writes
// transitions of which a run may die. excess is what the change pays beyond the adjudication.
func (h *LetterHandlers) applyWithLetterHandler(ctx context.Context, j *journal.Journal, tr background.Transition, decide journal.Decision) (after *journal.Snapshot, excess int64, _ error) {
	before := h.unanswered.take(tr.ID)
	for withoutHandler := false; ; withoutHandler = true {
		fx := before // unless it is decided again
		s, err := j.Apply(ctx, tr.Run.ID, tr.ID, func(s *journal.Snapshot) (ch journal.Change, err error) {
			fx = effects{}
			if ch, err = decide(s); err != nil {
				return ch, err
			}
			fx.excess = excessIn(&ch)
			if fx.dead = newlyDeadRun(&ch); fx.dead == nil || withoutHandler {
				return ch, nil
			}
			ch, fx.handler, err = h.attachHandler(ctx, ch, *fx.dead)
			return ch, unrecordableUnlessKnown(err)
		})
		if errors.Is(err, journal.ErrHandlerExists) && !withoutHandler {
			h.Applier.Log.Error("a dead letter gets no handler: the handler's retry key is in use", zap.Stringer("run", tr.Run.ID))
			continue
		}
		if !background.WriteOutcomeKnown(err) {
			if h.unanswered.keep(tr.ID, fx) {
				h.Applier.Log.Error("too many transitions are without an answer: a death, or a payment beyond its adjudication, may not be reported")
			}
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

// attachHandler returns a change with the handler of the run that dies in it, and the handler; nil
// without one. A run that handles a letter gets no handler itself, so that there is no loop.
func (h *LetterHandlers) attachHandler(ctx context.Context, ch journal.Change, dead background.Run) (journal.Change, *background.Run, error) {
	name := h.FamilyFor[dead.Family]
	if _, is := HandledRun(dead); is || name == "" {
		return ch, nil, nil
	}
	family := h.Applier.PlainFamilies[name]
	if family == nil {
		return ch, nil, nil
	}
	opening, err := h.Open(ctx, family, journal.Snapshot{Case: ch.After.Case, Run: dead})
	if err != nil {
		return ch, nil, err
	}
	run := opening.After.Run
	for i, d := range ch.Drafts {
		if d.Subtype == receipts.DeadLettered && d.Run == dead.ID {
			ch.Drafts[i].Payload.NewRun = run.ID
		}
	}
	ch.SideEffect = journal.LetterHandler{Letter: dead.ID, Opens: opening}
	return ch, &run, nil
}
