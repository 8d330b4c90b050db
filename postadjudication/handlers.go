package postadjudication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// handlerKey begins the retry key of a run that handles a dead letter; the run that
// died follows. No other task may have such a key.
const handlerKey = "dlq:"

// handles tells which run's letter a run handles. Its forks handle it too.
func handles(r background.Run) (letter background.RunID, ok bool) {
	text, found := strings.CutPrefix(r.RetryKey, handlerKey)
	if !found || r.Family == Family {
		return letter, false
	}
	letter, err := receipts.ParseRunID(text)
	return letter, err == nil
}

// handlers begins the run that handles a letter, in the commit in which the letter's
// run dies: it exists exactly once, whatever happens to this process.
//
//	family.Record ──▶ decide: the run dies ──▶ with a handler ──▶ one commit ──▶ bell
type handlers struct {
	service *Service
	of      map[string]string // the handler's family, by the family of the run that dies
}

// apply makes a move of a run, and begins the handler if the run dies of it.
func (h *handlers) apply(ctx context.Context, j *postgres.Journal, m background.Move, decide postgres.Decide) (*postgres.Snapshot, error) {
	if h == nil || len(h.of) == 0 {
		return j.Apply(ctx, m.Run.ID, m.ID, decide)
	}
	for handled := false; ; handled = true {
		var begins *background.Run
		s, err := j.Apply(ctx, m.Run.ID, m.ID, func(s *postgres.Snapshot) (postgres.Change, error) {
			begins = nil
			ch, err := decide(s)
			if err != nil || handled {
				return ch, err
			}
			ch, err = h.attach(ctx, ch, &begins)
			return ch, answer(err)
		})
		if errors.Is(err, postgres.ErrHandled) && !handled {
			h.service.log.Error("a dead letter gets no handler, its retry key is taken", zap.Stringer("run", m.Run.ID))
			continue
		}
		if err == nil && begins != nil {
			h.service.manager.BellBeside(ctx, *begins)
		}
		return s, err
	}
}

// answer is the error of a decision as an answer: what is none of those that a move can
// meet is about the values of the move, and to ask again would not help.
func answer(err error) error {
	if err == nil || background.Answered(err) || errors.Is(err, errSiblings) {
		return err
	}
	return fmt.Errorf("%w: %w", background.ErrUnrecordable, err)
}

// dies tells which run dies in a change, if one does: the run that it is about, or
// the one that holds its case.
func dies(ch *postgres.Change) (dead background.Run, does bool) {
	if ch.After.Run.Letter == background.LetterOpen && ch.Before.Run.Letter != background.LetterOpen {
		return ch.After.Run, true
	}
	for i := range ch.Others {
		if r := &ch.Others[i]; r.After.Letter == background.LetterOpen && r.Before.Letter != background.LetterOpen {
			return r.After, true
		}
	}
	return dead, false
}

// attach adds the handler to a change in which a run dies. A run that handles a
// letter itself has none: it dies like any other, and there is no loop.
func (h *handlers) attach(ctx context.Context, ch postgres.Change, begins **background.Run) (postgres.Change, error) {
	dead, does := dies(&ch)
	if !does {
		return ch, nil
	}
	family := h.service.plain[h.of[dead.Family]]
	if _, is := handles(dead); is || family == nil {
		return ch, nil
	}
	payload, err := json.Marshal(deadLetterOf(postgres.Snapshot{Case: ch.After.Case, Run: dead}))
	if err != nil {
		return ch, err
	}
	opening, err := h.service.taskSubmission(ctx, family, Task{
		Tenant: dead.Tenant, Family: family.Plain.Name, RetryKey: handlerKey + dead.ID.String(), Payload: payload, Actor: "system:dead-letter",
	}).Open()
	if err != nil {
		return ch, err
	}
	run := opening.After.Run
	for i, d := range ch.Drafts {
		if d.Subtype == receipts.DeadLettered && d.Run == dead.ID {
			ch.Drafts[i].Payload.NewRun = run.ID
		}
	}
	ch.Beside, *begins = postgres.Handler{Letter: dead.ID, Opens: opening}, &run
	return ch, nil
}
