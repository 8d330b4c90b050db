package postadjudication_test

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// withPanickingTasks adds a family of chores that panic, so that their outcome is unknown. The escrow
// service's keys have no lifetime: tasks do not depend on it.
func withPanickingTasks(c *postadjudication.Config) {
	c.TimeLimit = 10 * time.Millisecond
	c.Executor.(*rig.Escrow).KeyLife = time.Millisecond
	c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result { panic("boom") }}}
	c.Retention = []retention.Rule{{Family: "chores", MaxAge: "PT1H", MaxCount: 1}}
}

// A plain task moves no money: one that panicked or was interrupted failed, and can be forked,
// purged and pruned, and its key is free again.
func TestALetterOfATaskThatPanickedHasEveryWayOut(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop, withPanickingTasks).StartWorkers()
	ctx := context.Background()
	dies := func(key string) postadjudication.Submitted {
		t.Helper()
		s, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: key})
		if err != nil || s.Reply != postadjudication.Created {
			t.Fatalf("%+v, %v", s, err)
		}
		r.WaitStatus("it is a letter of unknown outcome", s.Run, func(s casestatus.Status) bool {
			return s.Letter == background.LetterOpen && s.Class == escrow.Unknown
		})
		return s
	}
	forked := dies("forked")
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if l := r.Letters(deadletter.Filter{}); len(l) != 1 || !l[0].CanFork || l[0].ExpiresAt == nil || l[0].Review || !l[0].Reprocess {
		t.Errorf("%+v", l)
	}
	next, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, forked.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitLetter(next.Run)
	if b := r.MustPurge(deadletter.Filter{Family: "chores"}, 1); b.People != 1 {
		t.Errorf("%+v", b)
	}
	dies("forked") // the key is free
	dies("older")
	k := r.NewPruner(withPanickingTasks)
	k.MustPrune(retention.Report{Pruned: 1}) // by count
	k.At(2 * time.Hour).MustPrune(retention.Report{Announced: 1})
	k.At(3 * time.Hour).MustPrune(retention.Report{Pruned: 1}) // by age
	r.MustAudit()
}

// A rule of its family replays it.
func TestARuleReplaysTasksThatPanicked(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop, withPanickingTasks).StartWorkers()
	if _, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "k"}); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	q := rig.ReplayRule(1)
	q.Rule.Filter = deadletter.Filter{Family: "chores"}
	r.MustSetRule(q)
	r.MustApplyRules(replay.Report{Rules: 1, Replayed: 1})
	r.WaitNoneLive()
	r.MustAudit()
}

// One that waits for its next attempt can be cancelled.
func TestATaskThatPanickedCanBeCancelled(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop, withPanickingTasks, func(c *postadjudication.Config) {
		c.Families[0].Policy.MaxRetryAttempts, c.Families[0].Policy.BaseDelay, c.Families[0].Policy.MaxDelay = 2, time.Hour, time.Hour
	}).StartWorkers()
	ctx := context.Background()
	s, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitState(s.Run, background.Scheduled)
	if st, err := rig.CancelRun(r, s); err != nil || st.State != background.Cancelled {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}
