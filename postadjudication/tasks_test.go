package postadjudication

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// withPanickingTasks adds a family of chores that panic, so that their outcome is unknown. The escrow
// service's keys have no lifetime: tasks do not depend on it.
func withPanickingTasks(c *Config) {
	c.TimeLimit = 10 * time.Millisecond
	c.Executor.(*scriptedEscrow).keyLifetime = time.Millisecond
	c.Families = []PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result { panic("boom") }}}
	c.Retention = []RetentionRule{{Family: "chores", MaxAge: "PT1H", MaxCount: 1}}
}

// A plain task moves no money: one that panicked or was interrupted failed, and can be forked,
// purged and pruned, and its key is free again.
func TestALetterOfATaskThatPanickedHasEveryWayOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop, withPanickingTasks).startWorkers()
	ctx := context.Background()
	dies := func(key string) Submitted {
		t.Helper()
		s, err := r.SubmitTask(ctx, Task{Tenant: "acme", Family: "chores", RetryKey: key})
		if err != nil || s.Reply != Created {
			t.Fatalf("%+v, %v", s, err)
		}
		r.until("dead", `SELECT letter = 'open' AND class = 'unknown' FROM recourse.runs WHERE id = $1`, s.Run.String())
		return s
	}
	forked := dies("forked")
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if l := r.letters(deadletter.Filter{}); len(l) != 1 || !l[0].CanFork || l[0].ExpiresAt == nil || l[0].Review || !l[0].Reprocess {
		t.Errorf("%+v", l)
	}
	next, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, forked.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.until("dead again", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, next.Run.String())
	cleared, err := r.Clear(ctx, "acme", ClearRequest{Reason: "old", Family: "chores", Confirm: "chores"})
	if err != nil || cleared.Letters != 1 {
		t.Errorf("%+v, %v", cleared, err)
	}
	dies("forked") // the key is free
	dies("older")
	k := r.retentionRig(withPanickingTasks)
	k.prune(PruneReport{Pruned: 1}) // by count
	k.at(2 * time.Hour).prune(PruneReport{Announced: 1})
	k.at(3 * time.Hour).prune(PruneReport{Pruned: 1}) // by age
	r.mustAudit()
}

// A rule of its family replays it.
func TestARuleReplaysTasksThatPanicked(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop, withPanickingTasks).startWorkers()
	if _, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "chores", RetryKey: "k"}); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	q := replayRule(1)
	q.Rule.Filter = deadletter.Filter{Family: "chores"}
	r.mustSetRule(q)
	r.mustApplyRules(RuleReport{Rules: 1, Replayed: 1})
	r.untilNoneLive()
	r.mustAudit()
}

// One that waits for its next attempt can be cancelled.
func TestATaskThatPanickedCanBeCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop, withPanickingTasks, func(c *Config) {
		c.Families[0].Policy.MaxRetryAttempts, c.Families[0].Policy.BaseDelay, c.Families[0].Policy.MaxDelay = 2, time.Hour, time.Hour
	}).startWorkers()
	ctx := context.Background()
	s, err := r.SubmitTask(ctx, Task{Tenant: "acme", Family: "chores", RetryKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	r.until("it waits", `SELECT state = 'scheduled' FROM recourse.runs`)
	if st, err := r.cancel(s); err != nil || st.State != background.Cancelled {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}
