package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

func liveUnique(onConflict jobs.OnConflict) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Unique = &jobs.Unique{Fingerprint: [32]byte{7}, Conflicts: func(s jobs.Status) bool { return s.State.Live() }, OnConflict: onConflict}
	}
}

// A live holder of a fingerprint is found behind a hundred newer ones that have ended.
func TestAnOldLiveHolderIsSeenBehindAHundredThatEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie(liveUnique(jobs.Reject))
	for range 100 {
		s := f.mustEnqueue(liveUnique(jobs.Reject))
		if _, err := f.Cancel(ctx, s.ID, "done"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, again); err != nil {
		t.Fatal(err)
	}
	second, err := f.Enqueue(ctx, newJob(liveUnique(jobs.Reject)))
	var duplicate *jobs.DuplicateError
	if !errors.As(err, &duplicate) {
		t.Errorf("error %v: %s is %s and %s is %s, both with one fingerprint", err, dead.ID, f.mustFind(dead.ID).State, second.ID, second.State)
	}
}

// A job that replaces others takes all of them out of its way, or is refused.
func TestAJobThatReplacesLeavesNoOtherInItsWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	first := f.mustEnqueue(liveUnique(jobs.Reject), func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) })
	second := f.mustEnqueue(func(j *jobs.Job) { // only one that runs is in its way
		j.Unique = &jobs.Unique{Fingerprint: [32]byte{7}, Conflicts: func(s jobs.Status) bool { return s.State == background.Running }, OnConflict: jobs.Reject}
	})
	third, err := f.Enqueue(ctx, newJob(liveUnique(jobs.Replace)))
	if err != nil {
		return // refused
	}
	for _, s := range []jobs.Status{first, second} {
		if now := f.mustFind(s.ID); now.State.Live() {
			t.Errorf("%s is %s beside %s, which replaced all that live", s.ID, now.State, third.ID)
		}
	}
}

// A rule replays the letters that may be replayed, however many others stay behind live unique jobs.
func TestARuleReplaysLettersBesideThoseThatAreBlocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	unique := func(n byte) func(*jobs.Job) {
		return func(j *jobs.Job) {
			j.Unique = &jobs.Unique{Fingerprint: [32]byte{n}, Conflicts: func(s jobs.Status) bool { return s.State.Live() }, OnConflict: jobs.Reject}
		}
	}
	var blocked, free []jobs.Status
	for n := range byte(12) {
		blocked = append(blocked, f.mustDie(unique(n+1)))
		f.mustEnqueue(unique(n+1), func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) })
	}
	for range 3 {
		free = append(free, f.mustDie())
	}
	var gate *refusal.RefusedError
	if _, err := f.Jobs.DeadLetters().Retry(ctx, blocked[0].ID, again); !errors.As(err, &gate) || gate.Gate != refusal.GateUniqueJobLive {
		t.Fatal(err)
	}
	f.MustSetRule(replay.Change{Reason: "the mailbox comes back", Rule: replay.Rule{
		Name: "later", Enabled: true, Filter: deadletter.Filter{Family: jobs.Family}, Delay: "0s", MaxReplays: 1}})
	for range 5 {
		if _, err := f.ApplyRules(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range free {
		if now := f.mustFind(s.ID); !now.Retried {
			t.Errorf("after five rounds job %s, which nothing blocks, is %s", s.ID, now.State)
		}
	}
	f.MustAudit()
}

// A unique job that is enqueued again after it ended is told of itself, not of the job that holds its fingerprint now.
func TestAUniqueJobThatIsEnqueuedAgainIsRefusedByItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	for name, enqueue := range map[string]func(*jobs.Job){
		"by its id":      func(j *jobs.Job) { j.ID = "01a217e7-1648-7bc3-bb81-a31e15a07263" },
		"by its request": func(j *jobs.Job) { j.ID, j.Request = "", "a request that is sent twice" },
	} {
		first := f.mustEnqueue(enqueue, liveUnique(jobs.Reject))
		if _, err := f.Cancel(ctx, first.ID, "done"); err != nil {
			t.Fatal(err)
		}
		second := f.mustEnqueue(liveUnique(jobs.Reject))
		_, err := f.Enqueue(ctx, newJob(enqueue, liveUnique(jobs.Reject)))
		var duplicate *jobs.DuplicateError
		if !errors.As(err, &duplicate) || duplicate.Existing.ID != first.ID || duplicate.Unique {
			t.Errorf("%s: %v, want to be told of %s", name, err, first.ID)
		}
		_, err = f.Enqueue(ctx, newJob(liveUnique(jobs.Reject)))
		if !errors.As(err, &duplicate) || duplicate.Existing.ID != second.ID || !duplicate.Unique {
			t.Errorf("%s: %v, want another job to be told of %s", name, err, second.ID)
		}
		if _, err := f.Cancel(ctx, second.ID, "done"); err != nil {
			t.Fatal(err)
		}
	}
}
