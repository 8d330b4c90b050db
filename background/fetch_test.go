package background_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

const (
	mail    = "mail" // a queue of remote runs
	workerA = "worker-a"
)

// neverDelivered fails the test when a remote run is delivered.
func neverDelivered(t *testing.T) func(context.Context, background.Attempt) background.Result {
	return func(_ context.Context, a background.Attempt) background.Result {
		t.Errorf("remote run %s was delivered", a.Run.ID)
		return refused
	}
}

// newRemoteFixture returns a fixture with a manager for remote runs.
func newRemoteFixture(t *testing.T) (*fixture, *background.Fetcher) {
	t.Helper()
	h := newFixture(t, neverDelivered(t))
	h.journal.SetReliable(true)
	return h, h.start(h.withLeases).Fetcher()
}

func (h *fixture) withLeases(c *background.Config) { c.Leases = h.journal.Leases() }

// remote adds a remote run to the journal.
func (h *fixture) remote(change ...func(*background.Run)) background.Run {
	h.t.Helper()
	due := time.Now().UTC().Add(-time.Second).Truncate(time.Microsecond) // however well the clock is measured yet
	r := background.Run{Family: family, Tenant: "acme", RetryKey: "job", Queue: mail, Remote: true, DueAt: due}
	for _, c := range change {
		c(&r)
	}
	return h.journal.Submit(r)
}

func wantMail(count int) lease.Want {
	return lease.Want{Tenant: "acme", Queues: []string{mail}, Count: count, Worker: workerA}
}

// fetch fetches what is wanted and fails the test unless that gives the runs, in their order.
func (h *fixture) fetch(f *background.Fetcher, want lease.Want, runs ...background.Run) []background.Claimed {
	h.t.Helper()
	claimed, err := f.Fetch(h.t.Context(), want)
	if err != nil {
		h.t.Fatal(err)
	}
	var got, expected []background.RunID
	for _, c := range claimed {
		got = append(got, c.Run.ID)
	}
	for _, r := range runs {
		expected = append(expected, r.ID)
	}
	if !slices.Equal(got, expected) {
		h.t.Fatalf("fetched %v, want %v", got, expected)
	}
	return claimed
}

func heldBy(worker string, r background.Run) lease.Held {
	return lease.Held{Run: r.ID, Tenant: "acme", Worker: worker}
}

// A remote run is fetched once, is not delivered, and ends by what its worker answers.
func TestARemoteRunIsFetchedAndFinished(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote()
	claimed := h.fetch(f, wantMail(5), r)[0]
	if claimed.Run.State != background.Running || claimed.Run.Attempt != 1 || claimed.Lease.Worker != workerA {
		t.Errorf("%+v", claimed)
	}
	h.fetch(f, wantMail(5))
	after, err := f.Finish(t.Context(), heldBy(workerA, r), background.Result{Class: background.Executed, Output: []byte(`{"sent":true}`)})
	if err != nil || after.State != background.Succeeded || string(after.Output) != `{"sent":true}` {
		t.Errorf("%+v, %v", after, err)
	}
	if _, err := f.Finish(t.Context(), heldBy(workerA, r), refused); !errors.Is(err, background.ErrNotFound) {
		t.Errorf("a second answer: %v", err)
	}
	if events := h.events(r.ID); !slices.Equal(events, []receipts.Subtype{receipts.AttemptStarted, receipts.AttemptSucceeded}) {
		t.Errorf("%v", events)
	}
	if m := h.journal.Transitions(r.ID)[1]; m.Worker != workerA || m.Duration < 0 {
		t.Errorf("%+v", m)
	}
}

// A claim is reported to OnTransition once, after its commit.
func TestAFetchReportsItsClaims(t *testing.T) {
	t.Parallel()
	h := newFixture(t, neverDelivered(t))
	h.journal.SetReliable(true)
	var claims []background.RunID
	f := h.start(h.withLeases, func(c *background.Config) {
		c.OnTransition = func(tr background.Transition, after background.Run) {
			if tr.Subtype == receipts.AttemptStarted && tr.Run.State == background.Pending && after.State == background.Running {
				claims = append(claims, after.ID)
			}
		}
	}).Fetcher()
	r := h.remote()
	h.fetch(f, wantMail(5), r)
	h.fetch(f, wantMail(5))
	if !slices.Equal(claims, []background.RunID{r.ID}) {
		t.Errorf("%v", claims)
	}
}

// Queues come in the order asked; in a queue the highest priority, then the earliest.
func TestRunsAreFetchedInOrder(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	now := time.Now()
	at := func(queue string, priority int, age time.Duration) background.Run {
		return h.remote(func(r *background.Run) { r.Queue, r.Priority, r.DueAt = queue, priority, now.Add(-age) })
	}
	later, first, urgent, other := at(mail, 0, time.Minute), at(mail, 0, time.Hour), at(mail, 9, time.Second), at("print", 99, time.Hour)
	at(mail, 9, -time.Hour) // due in an hour
	want := wantMail(3)
	want.Queues = []string{mail, "print"}
	h.fetch(f, want, urgent, first, later)
	h.fetch(f, want, other)
	h.fetch(f, want)
}

func TestConcurrentFetchesGetDifferentRuns(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	second := h.start(h.withLeases).Fetcher()
	for range 100 {
		h.remote()
	}
	var mu sync.Mutex
	given := map[background.RunID]int{}
	var all sync.WaitGroup
	for i := range 20 {
		from := []*background.Fetcher{f, second}[i%2]
		all.Go(func() {
			for range 50 {
				claimed, err := from.Fetch(t.Context(), wantMail(2))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, c := range claimed {
					given[c.Run.ID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(given) != 100 {
		t.Errorf("%d of 100 runs were fetched", len(given))
	}
	for id, n := range given {
		if n != 1 {
			t.Errorf("run %s was given to %d workers", id, n)
		}
	}
}

// Only the principal and the worker that hold a lease answer for it. A call that names no worker is any one's of the principal.
func TestALeaseBelongsToItsWorker(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	other := h.start(h.withLeases).Fetcher() // knows the lease from the journal only
	r := h.remote()
	h.fetch(f, wantMail(1), r)
	for name, held := range map[string]lease.Held{
		"another worker":    heldBy("worker-b", r),
		"another principal": {Run: r.ID, Tenant: "acme", Worker: workerA, Actor: "service:other"},
		"another attempt":   {Run: r.ID, Tenant: "acme", Worker: workerA, Attempt: 2},
	} {
		for _, by := range []*background.Fetcher{f, other} {
			if _, err := by.Finish(t.Context(), held, paid); !errors.Is(err, background.ErrNotHolder) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := by.HandBack(t.Context(), held, nil); !errors.Is(err, background.ErrNotHolder) {
				t.Errorf("%s hands back: %v", name, err)
			}
		}
	}
	if _, err := other.Finish(t.Context(), lease.Held{Run: r.ID, Tenant: "umbrella", Worker: workerA}, paid); !errors.Is(err, background.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if extended, err := other.Extend(t.Context(), []lease.Held{heldBy("worker-b", r)}, 0); err != nil || len(extended) != 0 {
		t.Errorf("another worker's heartbeat: %v, %v", extended, err)
	}
	if extended, err := other.Extend(t.Context(), []lease.Held{{Run: r.ID, Tenant: "acme", Worker: workerA, Actor: "service:other"}}, 0); err != nil || len(extended) != 0 {
		t.Errorf("another principal's heartbeat: %v, %v", extended, err)
	}
	if after, err := other.Finish(t.Context(), lease.Held{Run: r.ID, Tenant: "acme", Attempt: 1}, paid); err != nil || after.State != background.Succeeded {
		t.Errorf("%+v, %v", after, err)
	}
}

// Failures follow the policy, as those of handlers do, and the next attempt is fetched at its
// time.
func TestFailuresOfRemoteRunsFollowThePolicy(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote()
	for attempt := 1; ; attempt++ {
		var claimed []background.Claimed
		h.awaitTrue("the run is fetched", func() bool {
			var err error
			if claimed, err = f.Fetch(t.Context(), wantMail(1)); err != nil {
				t.Fatal(err)
			}
			return len(claimed) > 0
		})
		if early := time.Until(claimed[0].Run.DueAt); early > 0 {
			t.Errorf("attempt %d was given %s early", attempt, early)
		}
		after, err := f.Finish(t.Context(), heldBy(workerA, r), refused)
		if err != nil {
			t.Fatal(err)
		}
		if attempt == 3 {
			if after.State != background.DeadLettered || after.Letter != background.LetterOpen || after.Reason != background.ReasonRetryExhausted {
				t.Errorf("%+v", after)
			}
			break
		}
		if after.State != background.Scheduled || after.BudgetSpent != attempt {
			t.Fatalf("attempt %d: %+v", attempt, after)
		}
	}
	// asynqmon shows the dead letter.
	h.awaitArchived(r)
}

// awaitArchived waits until asynq has archived the task of a remote run.
func (h *fixture) awaitArchived(r background.Run) {
	h.t.Helper()
	h.awaitTrue("the task of the dead letter is archived", func() bool {
		for _, queue := range []string{family + ":0", family + ":1"} {
			tasks, err := h.inspector().ListArchivedTasks(queue)
			if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
				h.t.Fatal(err)
			}
			if slices.ContainsFunc(tasks, func(i *asynq.TaskInfo) bool { return string(i.Payload) == r.ID.String() }) {
				return true
			}
		}
		return false
	})
}

// What a worker hands back can be fetched at once, and spends no budget.
func TestAnAttemptIsHandedBack(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote(func(r *background.Run) { r.Policy = retrypolicy.Policy{MaxRetryAttempts: 1} })
	for i := range 3 {
		h.fetch(f, wantMail(1), r)
		after, err := f.HandBack(t.Context(), heldBy(workerA, r), nil)
		if err != nil || after.State != background.Scheduled || after.BudgetSpent != 0 || after.Attempt != i+1 || after.HandedBack != i+1 {
			t.Fatalf("%+v, %v", after, err)
		}
	}
}

// A lease whose worker is silent ends, and the run can be fetched again. The worker's answer comes too late.
func TestASilentWorkerLosesItsLease(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote()
	want := wantMail(1)
	want.Length = 50 * time.Millisecond
	h.fetch(f, want, r)
	after := h.awaitState(r.ID, background.Scheduled)
	if after.BudgetSpent != 1 || after.Failure.Type != string(lease.Expired) {
		t.Errorf("%+v", after)
	}
	if _, err := f.Finish(t.Context(), heldBy(workerA, r), paid); !errors.Is(err, background.ErrNotFound) && !errors.Is(err, background.ErrConflict) {
		t.Errorf("an answer after the end: %v", err)
	}
	if h.journal.Lease(r.ID) != (lease.Lease{}) {
		t.Error("the lease is left")
	}
	h.fetch(f, wantMail(1), r)
	if after, err := f.Finish(t.Context(), heldBy(workerA, r), paid); err != nil || after.State != background.Succeeded || after.Attempt != 2 {
		t.Errorf("%+v, %v", after, err)
	}
}

// Another process ends the leases of one that died. It watches a lease for its whole length
// from when it saw it first.
func TestLeasesOfADeadProcessEnd(t *testing.T) {
	t.Parallel()
	h := newFixture(t, neverDelivered(t))
	h.journal.SetReliable(true)
	gone := h.start(h.withLeases)
	r := h.remote()
	want := wantMail(1)
	want.Length = time.Second
	h.fetch(gone.Fetcher(), want, r)
	gone.stop()
	second, third := h.start(h.withLeases), h.start(h.withLeases)
	h.awaitState(r.ID, background.Scheduled)
	second.stop()
	third.stop()
	if events := h.events(r.ID); !slices.Equal(events, []receipts.Subtype{receipts.AttemptStarted, receipts.RetryScheduled}) {
		t.Errorf("two processes ended the lease: %v", events)
	}
}

// Heartbeats keep a lease.
func TestHeartbeatsExtendALease(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote()
	want := wantMail(1)
	want.Length = 2 * time.Second
	h.fetch(f, want, r)
	began := time.Now()
	h.awaitTrue("the lease would have ended", func() bool {
		extended, err := f.Extend(t.Context(), []lease.Held{heldBy(workerA, r)}, 0)
		if err != nil || len(extended) != 1 {
			t.Fatalf("%v, %v", extended, err)
		}
		return time.Since(began) > want.Length*3/2
	})
	if now := h.journal.Run(r.ID); now.State != background.Running || now.Attempt != 1 {
		t.Errorf("%+v", now)
	}
	h.awaitState(r.ID, background.Scheduled) // without them it ends
}

// Heartbeats do not extend the time limit of an attempt.
func TestATimeLimitEndsAnAttemptWhoseWorkerIsAlive(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	h.journal.SetLeaseLimit(400 * time.Millisecond)
	r := h.remote()
	h.fetch(f, wantMail(1), r)
	h.awaitTrue("the attempt has ended", func() bool {
		if _, err := f.Extend(t.Context(), []lease.Held{heldBy(workerA, r)}, time.Hour); err != nil {
			t.Fatal(err)
		}
		return h.journal.Run(r.ID).State != background.Running
	})
	if now := h.journal.Run(r.ID); now.Failure == nil || now.Failure.Type != background.FailureTimeout || now.BudgetSpent != 1 {
		t.Errorf("%+v", now)
	}
}

// A lease that was marked as ended is ended by any process, and no heartbeat extends it.
func TestAMarkedLeaseIsEndedByWhoeverFindsIt(t *testing.T) {
	t.Parallel()
	h := newFixture(t, neverDelivered(t))
	h.journal.SetReliable(true)
	f := h.start(h.withLeases)
	r := h.remote()
	h.fetch(f.Fetcher(), wantMail(1), r)
	f.stop()
	if marked, err := h.journal.Leases().EndLease(t.Context(), lease.Lease{Run: r.ID, Attempt: 1, Ended: lease.Expired}); err != nil || !marked {
		t.Fatal(marked, err)
	}
	if extended, err := f.Fetcher().Extend(t.Context(), []lease.Held{heldBy(workerA, r)}, 0); err != nil || len(extended) != 0 {
		t.Errorf("%v, %v", extended, err)
	}
	h.start(h.withLeases)
	h.awaitState(r.ID, background.Scheduled)
}

// A run that nobody fetched in time ends, by its policy, without an attempt.
func TestARunExpires(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	past := time.Now().Add(-time.Millisecond)
	expired := func(action retrypolicy.Exhaustion) background.Run {
		return h.remote(func(r *background.Run) { r.ExpiresAt, r.Policy.OnExhaustion = past, action })
	}
	discarded, kept := expired(retrypolicy.Discard), expired(retrypolicy.DeadLetter)
	h.fetch(f, wantMail(5))
	for r, want := range map[background.RunID]background.State{discarded.ID: background.Discarded, kept.ID: background.DeadLettered} {
		if now := h.awaitState(r, want); now.Attempt != 0 || now.Reason != background.ReasonExpired {
			t.Errorf("%+v", now)
		}
	}
	if after, err := f.Expire(t.Context(), h.journal.Run(kept.ID)); err != nil || after.State != background.DeadLettered {
		t.Errorf("a second expiry: %+v, %v", after, err)
	}
}

// A circuit breaker that a person opened holds remote runs, too.
func TestABreakerHoldsRemoteRuns(t *testing.T) {
	t.Parallel()
	h := newFixture(t, neverDelivered(t))
	h.journal.SetReliable(true)
	w := h.start(h.withLeases)
	target := circuit.Scope{Tenant: "acme", Family: family, Name: "mail.send"}
	r := h.remote(func(r *background.Run) { r.Target = target.Name })
	set := func(s circuit.State) {
		t.Helper()
		if _, changed, err := w.UpdateBreaker(t.Context(), target, func(b circuit.Breaker) (circuit.Breaker, bool) {
			b.State, b.Manual, b.Version = s, true, b.Version+1
			return b, true
		}); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	set(circuit.Open)
	h.fetch(w.Fetcher(), wantMail(1))
	set(circuit.Closed)
	h.fetch(w.Fetcher(), wantMail(1), r)
}

// A journal that can't be reached loses no lease and no answer: the same call succeeds later.
func TestAnAnswerSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote()
	h.fetch(f, wantMail(1), r)
	down := errors.New("down")
	h.journal.SetDown(down)
	if _, err := f.Finish(t.Context(), heldBy(workerA, r), paid); !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
	if _, err := f.Fetch(t.Context(), wantMail(1)); err != nil && !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
	h.journal.SetDown(nil)
	if after, err := f.Finish(t.Context(), heldBy(workerA, r), paid); err != nil || after.State != background.Succeeded {
		t.Errorf("%+v, %v", after, err)
	}
}

// An answer is decided again when a cancel was requested meanwhile.
func TestAnAnswerHonoursACancelThatWasRequestedMeanwhile(t *testing.T) {
	t.Parallel()
	h, f := newRemoteFixture(t)
	r := h.remote()
	h.fetch(f, wantMail(1), r)
	h.journal.RequestCancel(r.ID)
	if after, err := f.Finish(t.Context(), heldBy(workerA, r), refused); err != nil || after.State != background.Cancelled {
		t.Errorf("%+v, %v", after, err)
	}
}

func TestAManagerWithoutLeasesGivesNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t, neverDelivered(t))
	f := h.start().Fetcher()
	_, fetch := f.Fetch(t.Context(), wantMail(1))
	_, finish := f.Finish(t.Context(), lease.Held{}, paid)
	_, extend := f.Extend(t.Context(), nil, 0)
	for _, err := range []error{fetch, finish, extend} {
		if !errors.Is(err, background.ErrNoRemoteRuns) {
			t.Errorf("%v", err)
		}
	}
}
