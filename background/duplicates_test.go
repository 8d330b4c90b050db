package background_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// started checks that attempts were numbered without gap or repetition and called
// once each.
func (h *house) startedOnceEach(ids []background.RunID, attempts int) {
	h.t.Helper()
	for _, id := range ids {
		claims := 0
		for _, f := range h.facts(id) {
			if f == receipts.AttemptStarted {
				claims++
			}
		}
		if r := h.journal.Run(id); r.Attempt != attempts || claims != attempts {
			h.t.Errorf("attempt %d, %d claims; want %d", r.Attempt, claims, attempts)
		}
	}
}

func TestTwoBellsForOneRunMakeEachAttemptOnce(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	h := newHouse(t, func(_ context.Context, a background.Attempt) background.Result {
		if _, twice := seen.LoadOrStore(fmt.Sprint(a.Run.ID, a.Number), true); twice {
			t.Errorf("attempt %d of %s was called twice", a.Number, a.Run.ID)
		}
		return refused
	})
	one, two := h.start(), h.start()
	var ids []background.RunID
	for range 20 {
		r := h.submit(one)
		ids = append(ids, r.ID)
		r.Bell = 2
		if err := two.Bell(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		h.awaitState(id, background.DeadLettered)
	}
	h.startedOnceEach(ids, 3)
	if h.calls.Load() != 60 {
		t.Errorf("%d calls", h.calls.Load())
	}
}

func TestBellThatRingsAlreadyIsRung(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(context.Context, background.Attempt) background.Result { return paid })
	m, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	r := h.submit(&worker{Manager: m})
	if err := m.Bell(t.Context(), r); err != nil {
		t.Error(err)
	}
	if info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1"); err != nil || string(info.Payload) != r.ID.String() || info.Type != family {
		t.Errorf("task %+v, %v", info, err)
	}
}

func TestBellOfADeadRunKeepsItsMirror(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	r := h.submit(w, func(r *background.Run) {
		r.State, r.Letter, r.Reason, r.Failure = background.DeadLettered, background.LetterOpen, "final", refused.Failure
	})
	old := h.submit(w, func(r *background.Run) {
		r.State, r.Letter = background.DeadLettered, background.LetterForked
	})
	i := h.inspector()
	h.awaitTrue("the mirror", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	h.awaitTrue("a forked letter has no mirror", func() bool {
		_, err := i.GetTaskInfo(old.Queue, old.ID.String()+".1")
		return err != nil
	})
	another := r
	another.Bell = 7 // of nobody that the journal knows
	if err := w.Bell(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("another task is archived beside it", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".7")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	if told := h.toldOutOfBand(r.ID); len(told) > 0 || h.calls.Load() != 0 {
		t.Errorf("%d calls; said to be touched: %v", h.calls.Load(), told)
	}
}

func TestBellOfNobodyIsAcknowledged(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	r := background.Run{ID: background.RunID{1}, Family: family, Queue: w.Queue(family, "x"), Bell: 1}
	if err := w.Bell(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	i := h.inspector()
	h.awaitTrue("the task is gone", func() bool {
		_, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err != nil
	})
}
