package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// startedPlan is a running plan while no process runs plans.
func (r *rig) startedPlan(q BulkRequest) Bulk {
	r.t.Helper()
	plan := r.mustPlan(q)
	b, err := r.As(plan.Tenant, "user:bob").Bulk.Run(context.Background(), plan.ID, plan.Hash)
	return r.checkBulkState(b, err, BulkRunning)
}

func (r *rig) mustWorkBulk(b Bulk) {
	kept, err := r.plans.stored.Find(context.Background(), b.Tenant, b.ID)
	if err == nil {
		err = r.plans.workBulk(context.Background(), kept)
	}
	if err != nil {
		r.t.Error(err)
	}
}

// Many processes that all act as the holder of one plan do everything once: the lock only saves
// work, the heads of the cases are the guard.
func TestManyWhoWorkOnOnePlanDoEverythingOnce(t *testing.T) {
	t.Parallel()
	for _, action := range []BulkAction{BulkFork, BulkPurge, BulkHold} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			r := newRig(t).startWorkers()
			const n = 300 // more than a chunk
			r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
			r.stopWork()
			q := allLetters(action)
			plan := r.startedPlan(q)
			var all sync.WaitGroup
			for range 3 {
				other := joinRig(t, r.url, r.redis, r.escrow)
				all.Go(func() { other.mustWorkBulk(plan) })
			}
			all.Wait()
			b := r.untilPlanDone(plan.ID)
			if b.Progress.Done != n {
				t.Errorf("%+v", b.Progress)
			}
			if got := r.count(`SELECT count(*) FROM recourse.receipts WHERE actor = 'user:bob' AND body::json->'payload'->>'bulk' = $1
				AND subtype IN ('manual-retry-requested', 'purged', 'hold-placed')`, plan.ID); got != n {
				t.Errorf("%d receipts of %d letters", got, n)
			}
			r.checkPlanReceipts(plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
			if action == BulkFork {
				joinRig(t, r.url, r.redis, r.escrow).startWorkers().untilNoneLive()
			}
			r.mustAudit()
		})
	}
}

// An item whose lookup gives no answer, or panics, is left for a person; the others continue.
func TestALookupThatPanicsStopsNoOtherItem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	lost := r.deadLetters(0, 5, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return noAnswer() })
	r.stopWork()
	plan := r.startedPlan(allLetters(BulkReconcile))
	r.escrow.mu.Lock()
	r.escrow.lookup = func(c escrow.Call) escrow.Answer {
		switch c.Run {
		case lost[1].Run:
			panic("no route for card 4111 1111 1111 1111")
		case lost[2].Run:
			return noAnswer()
		}
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "looked up"}
	}
	r.escrow.mu.Unlock()
	r.mustWorkBulk(plan)
	b := r.untilPlanDone(plan.ID)
	if p := b.Progress; p.Done != 3 || p.Refused != 2 || p.ByGate[refusal.GateReconcileFirst] != 2 {
		t.Errorf("%+v", p)
	}
	for _, i := range r.bulkItems(plan.ID, "refused") {
		if i.Run != lost[1].Run && i.Run != lost[2].Run || strings.Contains(i.Error, "4111") {
			t.Errorf("%+v", i)
		}
	}
	r.mustAudit()
}

// A plan does not fork a held letter, since it does not name it.
func TestABulkForkSkipsWhatIsHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letters := r.deadLetters(0, 3, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.As("acme", "user:cem").DeadLetters.Hold(context.Background(), letters[1].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	plan := r.mustPlan(allLetters(BulkFork))
	if plan.Refused[refusal.GateHeld] != 1 || plan.Ready != 2 || plan.Money["EUR"] != 2000 {
		t.Errorf("%+v", plan)
	}
	if b := r.runPlan(plan); b.Progress.Done != 2 || b.Progress.ByGate[refusal.GateHeld] != 1 {
		t.Errorf("%+v", b.Progress)
	}
	r.untilNoneLive()
	if st, err := r.Status(context.Background(), "acme", letters[1].Run); err != nil || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
}

// Items that never had a try of their own are not failed because the journal was away.
func TestWhatFailsAfterTheLastTry(t *testing.T) {
	t.Parallel()
	away := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for what, c := range map[string]struct {
		own, try error
		want     string // contained in the error; empty: no outcome
	}{
		"the journal could not be read":         {nil, away, ""},
		"the journal took no write":             {nil, fmt.Errorf("%w: %w", casework.ErrJournalUnavailable, away), ""},
		"the journal took no write, and before": {errItem, casework.ErrJournalUnavailable, errItem.Error()},
		"the journal did not answer the item":   {away, away, ""},
		"the item fails":                        {errItem, errItem, errItem.Error()},
		"the item is locked":                    {background.ErrBusy, background.ErrBusy, background.ErrBusy.Error()},
		"the action can't be made":              {nil, errItem, errItem.Error()},
		"others change the letter all the time": {nil, nil, errContended.Error()},
	} {
		done, item := plans.Item{Outcome: string(OutcomeDone)}, plans.Item{}
		pending, failures := map[background.RunID]*plans.Item{{1}: &done, {2}: &item}, map[background.RunID]error{}
		if c.own != nil {
			failures[background.RunID{2}] = c.own
		}
		failPending(pending, failures, c.try)
		if done.Outcome != string(OutcomeDone) || done.Error != "" {
			t.Errorf("%s: what was done is %+v", what, done)
		}
		if (item.Outcome == string(OutcomeFailed)) != (c.want != "") || !strings.Contains(item.Error, c.want) {
			t.Errorf("%s: %q, %q", what, item.Outcome, item.Error)
		}
	}
}

var errItem = errors.New("not this letter")
