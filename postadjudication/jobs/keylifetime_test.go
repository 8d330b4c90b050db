package jobs_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// keyedForHalfADay is a fetch that may be repeated, with a lease that is longer than operation keys live in
// these tests.
func keyedForHalfADay(q *jobs.Fetch) { q.Visibility, q.Key = 12*time.Hour, lease.FetchKey{1} }

// A worker that dies after it paid may repeat its fetch, and then pays again under the same operation key. So an
// attempt ends while that key is recognised.
func TestAnAttemptEndsWhileItsKeyIsRecognised(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.submitRemote(1)
	first := f.mustFetchOrder("w1", keyedForHalfADay)
	if end := first.StartedAt.Add(time.Hour); first.Meta.NotAfter.After(end) {
		t.Errorf("the attempt may be paid until %s after its key is forgotten", first.Meta.NotAfter.Sub(end))
	}
	again := f.mustFetchOrder("w1", keyedForHalfADay)
	if again.ID != first.ID || !again.Meta.NotAfter.Equal(first.Meta.NotAfter) {
		t.Errorf("the repeated fetch gives %s until %s, want %s until %s", again.ID, again.Meta.NotAfter, first.ID, first.Meta.NotAfter)
	}
}

// The key of an attempt after one of unknown outcome was first used by the first.
func TestAnAttemptAfterAnUnknownOneEndsWhileItsKeyIsRecognised(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	s, _ := f.submitRemote(1)
	first := f.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	second := f.mustFetchOrder("w1", func(q *jobs.Fetch) { q.Visibility = 12 * time.Hour })
	if end := first.StartedAt.Add(time.Hour); second.Meta.NotAfter.After(end) {
		t.Errorf("attempt 2 may be paid until %s after its key is forgotten", second.Meta.NotAfter.Sub(end))
	}
}

// Where nobody states that the payment services of workers recognise operation keys, or where they do so for less
// than a call may be delayed, an adjudication is given to a worker once.
func TestARepeatedFetchGivesNoAdjudicationWhoseKeyIsNotRecognised(t *testing.T) {
	t.Parallel()
	for _, lifetime := range []time.Duration{0, time.Second} {
		f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = lifetime })
		f.submitRemote(1)
		f.submitRemote(2)
		fetch := jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"}
		keyedForHalfADay(&fetch)
		if got, err := f.Fetch(t.Context(), fetch); err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := f.Fetch(t.Context(), fetch); err != nil || len(got) != 0 {
			t.Errorf("lifetime %s: the repeated fetch gives %+v, %v", lifetime, got, err)
		}
	}
}

// atClock returns the jobs as a process sees them whose clock can be set.
func (f *fixture) atClock(change ...func(*postadjudication.Config)) (*fixture, *rig.Clock) {
	r, clock := f.WithClock(append(change, withJobs)...)
	return &fixture{r, r.As("acme", "service:shop").Jobs, f.t}, clock
}

// A process that started later watches the limit of a lease from then on. Meanwhile a repeated fetch gives no order
// whose key may be forgotten: a worker that paid, and died, would pay again.
func TestARepeatedFetchGivesNoOrderOnceItsKeyMayBeForgotten(t *testing.T) {
	t.Parallel()
	recognised := func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour }
	f := newFixture(t, recognised)
	f.submitRemote(1)
	f.mustFetchOrder("w1", keyedForHalfADay)
	later, clock := f.atClock(recognised)
	fetch := jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"}
	keyedForHalfADay(&fetch)
	for after, want := range map[time.Duration]int{30 * time.Minute: 1, 2 * time.Hour: 0} {
		clock.Set(after)
		if got, err := later.Fetch(t.Context(), fetch); err != nil || len(got) != want {
			t.Errorf("after %s the repeated fetch gives %d orders, want %d: %v", after, len(got), want, err)
		}
	}
}

// The lifetime of a key counts from the first call also if that executed nothing, as long as another call may follow
// under it. The lifetime of one that was forgotten by then counts from the next call.
func TestAnAttemptAfterOneThatDidNotExecuteEndsWhileItsKeyIsRecognised(t *testing.T) {
	t.Parallel()
	recognised := func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour }
	f := newFixture(t, recognised)
	later, clock := f.atClock(recognised)
	for n, after := range []time.Duration{40 * time.Minute, 2 * time.Hour} {
		_, job := f.submitRemote(n)
		clock.Set(0)
		first := later.mustFetchOrder("w1")
		if _, err := later.Nack(t.Context(), by(job), notExecuted, true, background.EndByPolicy); err != nil {
			t.Fatal(err)
		}
		clock.Set(after)
		fetch := jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"}
		keyedForHalfADay(&fetch)
		fetch.Key[1] = byte(n)
		second := later.mustFetchOrder("w1", func(q *jobs.Fetch) { *q = fetch })
		end := first.StartedAt.Add(time.Hour)
		if second.Meta.OperationKey != first.Meta.OperationKey || after < time.Hour && second.Meta.NotAfter.After(end) {
			t.Errorf("after %s: attempt 2 may be paid until %s after its key is forgotten", after, second.Meta.NotAfter.Sub(end))
		}
		clock.Set(after + 25*time.Minute)
		want := n // the second key was forgotten, and is known again for an hour
		if got, err := later.Fetch(t.Context(), fetch); err != nil || len(got) != want {
			t.Errorf("after %s: the fetch is repeated 25m later, and gives %+v, %v", after, got, err)
		}
	}
}

// Nobody is given an order while the payment service still knows its key from an earlier call and may forget it before
// a call could end: a worker that repeats its call within its lease would pay twice.
func TestNoOrderIsGivenWhileItsKeyIsAboutToBeForgotten(t *testing.T) {
	t.Parallel()
	recognised := func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour }
	f := newFixture(t, recognised)
	later, clock := f.atClock(recognised)
	for n, before := range []time.Duration{8 * time.Second, 5 * time.Second, 2 * time.Second} {
		s, job := f.submitRemote(n)
		clock.Set(0)
		later.mustFetchOrder("w1")
		if _, err := later.Nack(t.Context(), by(job), notExecuted, true, background.EndByPolicy); err != nil {
			t.Fatal(err)
		}
		clock.Set(time.Hour - before)
		if got, err := later.Fetch(t.Context(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"}); err != nil || len(got) != 0 {
			t.Errorf("%s before its key is forgotten a worker is given %+v, %v", before, got, err)
		}
		if st := later.StatusOf(s.Run); st.WaitsFor != casestatus.WaitsForKey {
			t.Errorf("%s before its key is forgotten it waits for %s: %s", before, st.WaitsFor, st.WaitsBecause)
		}
	}
}

// An order whose key was forgotten is leased again, and its key is known from then on: nobody is given it once more while
// that key is about to be forgotten.
func TestTheLifetimeOfAForgottenKeyCountsFromTheNextCall(t *testing.T) {
	t.Parallel()
	recognised := func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour }
	f := newFixture(t, recognised)
	later, clock := f.atClock(recognised)
	_, job := f.submitRemote(1)
	refuse := func() {
		t.Helper()
		answer := by(job)
		answer.Attempt = later.mustFetchOrder("w1").Meta.Attempt
		if _, err := later.Nack(t.Context(), answer, notExecuted, true, background.EndByPolicy); err != nil {
			t.Fatal(err)
		}
	}
	refuse()
	clock.Set(2 * time.Hour)
	refuse()
	clock.Set(3*time.Hour - 2*time.Second)
	if got, err := later.Fetch(t.Context(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"}); err != nil || len(got) != 0 {
		t.Errorf("2s before its key is forgotten a worker is given %+v, %v", got, err)
	}
	later.MustAudit()
}
