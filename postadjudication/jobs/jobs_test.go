package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// A job is fetched with the bytes that were enqueued, is done once, and leaves its receipts.
func TestAJobIsEnqueuedFetchedAndDone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	job := newJob(func(j *jobs.Job) { j.Priority = -7 })
	s, err := f.Enqueue(ctx, job)
	if err != nil || s.ID != job.ID || s.State != background.Pending || s.CreatedAt.IsZero() {
		t.Fatalf("%+v, %v", s, err)
	}
	got := f.mustFetch(s)
	if string(got.Payload) != string(job.Payload) || got.Attempt != 1 || got.Priority != -7 || !got.CreatedAt.Equal(s.CreatedAt) || !got.EnqueuedAt.Equal(s.CreatedAt) || got.StartedAt.IsZero() || got.RetryDelay != 0 {
		t.Errorf("%+v", got)
	}
	f.fetchNothing()
	done, err := f.Ack(ctx, by(s), json.RawMessage(`{"sent":1}`))
	if err != nil || done.State != background.Succeeded {
		t.Fatalf("%+v, %v", done, err)
	}
	found := f.mustFind(s.ID)
	if string(found.Output) != `{"sent":1}` || found.State != background.Succeeded || found.Attempt != 1 || found.EndedAt.IsZero() || !found.EndedByAttempt || len(found.Failures) != 0 {
		t.Errorf("%+v", found)
	}
	_, err = f.Ack(ctx, by(s), nil)
	wantConflict(t, err, background.Succeeded)
	f.wantSubtypes(s, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptSucceeded)
	f.MustAudit()
}

func TestTheIDOfAJobIsTakenForGood(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.mustEnqueue()
	again := newJob(func(j *jobs.Job) { j.ID = first.ID })
	var duplicate *jobs.DuplicateError
	if _, err := f.Enqueue(context.Background(), again); !errors.As(err, &duplicate) || duplicate.Existing.Run != first.Run || duplicate.Unique {
		t.Errorf("%v", err)
	}
	f.mustFetch(first)
	if _, err := f.Ack(context.Background(), by(first), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Enqueue(context.Background(), again); !errors.As(err, &duplicate) || duplicate.Existing.State != background.Succeeded {
		t.Errorf("%v", err)
	}
	elsewhere := f.As("umbrella", "service:shop").Jobs
	if s, err := elsewhere.Enqueue(context.Background(), again); err != nil || s.ID != first.ID || s.Case == first.Case {
		t.Errorf("another tenant: %+v, %v", s, err)
	}
	f.MustAudit()
}

// Failed attempts are kept with what the worker said, and the policy decides about the rest.
func TestAJobFailsByItsPolicy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		end       retrypolicy.Exhaustion
		retryable bool
		order     background.EndOrder
		attempts  int
		state     background.State
		reason    string
	}{
		"kept":                      {retrypolicy.DeadLetter, true, background.EndByPolicy, 2, background.DeadLettered, background.ReasonRetryExhausted},
		"discarded":                 {retrypolicy.Discard, true, background.EndByPolicy, 2, background.Discarded, background.ReasonRetryExhausted},
		"final":                     {retrypolicy.Discard, false, background.EndByPolicy, 1, background.Discarded, background.ReasonFinal},
		"discarded by order":        {retrypolicy.DeadLetter, true, background.EndDiscarded, 1, background.Discarded, background.ReasonOrdered},
		"kept by order, not policy": {retrypolicy.Discard, true, background.EndDeadLettered, 1, background.DeadLettered, background.ReasonOrdered},
	} {
		s := f.mustEnqueue(attempts(2, c.end), func(j *jobs.Job) { j.Queue = "q-" + string(c.state)[:3] + name[:1] + name[len(name)-1:] })
		var after jobs.Status
		for i := 1; i <= c.attempts; i++ {
			f.Wait(name+" is due", func() bool { return !time.Now().Before(f.mustFind(s.ID).DueAt) })
			got := f.mustFetch(s)
			if got.Attempt != i || (i > 1) != (got.RetryDelay > 0) {
				t.Errorf("%s: %+v", name, got)
			}
			var err error
			if after, err = f.Nack(ctx, by(s), refused, c.retryable, c.order); err != nil {
				t.Fatal(err)
			}
		}
		found := f.mustFind(s.ID)
		if after.State != c.state || found.State != c.state || len(found.Failures) != c.attempts || found.EndedAt.IsZero() {
			t.Errorf("%s: %+v, %+v", name, after, found)
			continue
		}
		for i, one := range found.Failures {
			if one.Attempt != i+1 || one.Cycle != 1 || one.Type != refused.Type || one.Code != refused.Code || one.Message != refused.Message || string(one.Details) != refused.Details || one.At.IsZero() {
				t.Errorf("%s: %+v", name, one)
			}
		}
		_, err := f.Nack(ctx, by(s), refused, true, background.EndByPolicy)
		wantConflict(t, err, c.state)
	}
	f.MustAudit()
}

// A job that waits, has ended, or is held by another worker is answered with its state.
func TestOnlyTheHolderAnswersForAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	s := f.mustEnqueue()
	_, err := f.Ack(ctx, by(s), nil)
	wantConflict(t, err, background.Pending)
	if _, err := f.Ack(ctx, jobs.Answer{ID: newJob().ID}, nil); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("%v", err)
	}
	f.mustFetch(s)
	other := f.other()
	for name, a := range map[string]jobs.Answer{"another worker": {ID: s.ID, Worker: "w2"}, "another attempt": {ID: s.ID, Worker: "w1", Attempt: 2}} {
		for _, from := range []*fixture{f, other} {
			if _, err := from.Ack(ctx, a, nil); err == nil {
				t.Errorf("%s may answer", name)
			} else {
				wantConflict(t, err, background.Running)
			}
		}
	}
	if extended, err := other.Heartbeat(ctx, "w2", []string{s.ID}, 0); err != nil || len(extended) != 0 {
		t.Errorf("%v, %v", extended, err)
	}
	if _, err := other.Heartbeat(ctx, "w1", []string{s.ID}, -time.Second); !errors.As(err, new(*refusal.FieldError)) {
		t.Errorf("a negative length: %v", err)
	}
	if extended, err := other.Heartbeat(ctx, "w1", []string{s.ID}, math.MaxInt64); err != nil || len(extended) != 1 {
		t.Errorf("a length without end: %v, %v", extended, err)
	}
	if extended, err := other.Heartbeat(ctx, "w1", []string{s.ID, newJob().ID}, time.Minute); err != nil || len(extended) != 1 || extended[0] != s.ID {
		t.Errorf("%v, %v", extended, err)
	}
	elsewhere := f.As("umbrella", "service:x").Jobs
	if _, err := elsewhere.Ack(ctx, by(s), nil); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if after, err := other.Ack(ctx, jobs.Answer{ID: s.ID}, nil); err != nil || after.State != background.Succeeded {
		t.Errorf("%+v, %v", after, err)
	}
	f.MustAudit()
}

func TestAHandedBackAttemptDoesNotCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	s := f.mustEnqueue(attempts(1, retrypolicy.Discard))
	for range 2 {
		if got := f.mustFetch(s); got.Attempt != 1 {
			t.Errorf("%+v", got)
		}
		if after, err := f.HandBack(ctx, by(s), background.Failure{}); err != nil || after.State != background.Scheduled || after.Attempt != 0 {
			t.Fatalf("%+v, %v", after, err)
		}
	}
	if found := f.mustFind(s.ID); found.Attempt != 0 || len(found.Failures) != 0 {
		t.Errorf("%+v", found)
	}
	f.mustFetch(s)
	if after, err := f.Nack(ctx, by(s), refused, true, background.EndByPolicy); err != nil || after.State != background.Discarded || after.Attempt != 1 {
		t.Errorf("%+v, %v", after, err)
	}
	if found := f.mustFind(s.ID); len(found.Failures) != 1 || found.Failures[0].Attempt != 1 {
		t.Errorf("%+v", found)
	}
	f.MustAudit()
}

// A job is given to nobody before its time, and a pending one not before its activation.
func TestJobsWaitForTheirTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	later := f.mustEnqueue(func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) })
	pending := f.mustEnqueue(func(j *jobs.Job) { j.Pending = true })
	past := f.mustEnqueue(func(j *jobs.Job) { j.NotBefore = time.Now().Add(-time.Hour) })
	f.mustFetch(past)
	f.fetchNothing()
	if s := f.mustFind(later.ID); s.DueAt.Before(time.Now().Add(59 * time.Minute)) {
		t.Errorf("%+v", s)
	}
	_, err := f.Activate(ctx, later.ID)
	wantConflict(t, err, background.Pending)
	if s := f.mustFind(pending.ID); !s.AwaitsActivation {
		t.Errorf("%+v", s)
	}
	if s, err := f.Activate(ctx, pending.ID); err != nil || s.AwaitsActivation {
		t.Errorf("%+v, %v", s, err)
	}
	f.mustFetch(pending)
	_, err = f.Activate(ctx, pending.ID)
	wantConflict(t, err, background.Running)
	f.wantSubtypes(pending, receipts.Submitted, receipts.Activated, receipts.AttemptStarted)
	f.MustAudit()
}

func TestAJobIsCancelledWhereverItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	for name, s := range map[string]jobs.Status{
		"waiting": f.mustEnqueue(func(j *jobs.Job) { j.Queue = "a" }), "pending": f.mustEnqueue(func(j *jobs.Job) { j.Pending = true }),
		"held": f.mustEnqueue(),
	} {
		if name == "held" {
			f.mustFetch(s)
		}
		if after, err := f.Cancel(ctx, s.ID, "sent in error"); err != nil || after.State != background.Cancelled {
			t.Errorf("%s: %+v, %v", name, after, err)
		}
		_, err := f.Cancel(ctx, s.ID, "again")
		wantConflict(t, err, background.Cancelled)
		if name == "held" {
			_, err := f.Ack(ctx, by(s), nil)
			wantConflict(t, err, background.Cancelled)
		}
		if found := f.mustFind(s.ID); found.State != background.Cancelled || found.EndedAt.IsZero() {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if n := f.CountRows("leases"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	f.MustAudit()
}

// A job that nobody fetched in time is never fetched, and ends at the next look.
func TestAJobExpires(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	expires := func(end retrypolicy.Exhaustion) jobs.Status {
		return f.mustEnqueue(func(j *jobs.Job) { j.ExpiresAt, j.Policy.OnExhaustion = time.Now().Add(time.Millisecond), end })
	}
	discarded, kept := expires(retrypolicy.Discard), expires(retrypolicy.DeadLetter)
	f.Wait("the jobs expire", func() bool { return time.Now().After(kept.ExpiresAt.Add(50 * time.Millisecond)) })
	f.fetchNothing()
	for id, want := range map[string]background.State{discarded.ID: background.Discarded, kept.ID: background.DeadLettered} {
		if s := f.mustFind(id); s.State != want || s.Attempt != 0 || s.EndedAt.IsZero() || s.EndedByAttempt {
			t.Errorf("%+v", s)
		}
	}
	f.MustAudit()
}

// Workers of two processes and many fetches get every job once.
func TestEveryJobIsGivenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	const n = 200
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := f.Enqueue(ctx, newJob()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var mu sync.Mutex
	given := map[string]int{}
	processes := []*fixture{f, f.other()}
	for i := range 16 {
		from := processes[i%2]
		all.Go(func() {
			for empty := 0; empty < 5; {
				got, err := from.Fetch(ctx, jobs.Fetch{Queues: []string{mail}, Count: 1 + i%3, Worker: "w1"})
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) == 0 {
					empty++
				}
				for _, g := range got {
					mu.Lock()
					given[g.ID]++
					mu.Unlock()
					if _, err := from.Ack(ctx, by(g.Status), nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if len(given) != n {
		t.Errorf("%d of %d jobs were given", len(given), n)
	}
	for id, times := range given {
		if times != 1 {
			t.Errorf("job %s was given %d times", id, times)
		}
	}
	f.MustAudit()
}

// What a lease needs stands in the envelope, and a silent worker loses it.
func TestALeaseEndsByTheEnvelopeOfItsJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	ctx := context.Background()
	silent := f.mustEnqueue(func(j *jobs.Job) {
		j.Queue, j.Payload = "a", json.RawMessage(`{"options":{"visibility_timeout_ms":300}}`)
	})
	slow := f.mustEnqueue(func(j *jobs.Job) { j.Queue, j.Payload = "b", json.RawMessage(`{"options":{"timeout_ms":300}}`) })
	if got := f.mustFetch(silent); got.Visibility != 300*time.Millisecond {
		t.Errorf("%+v", got)
	}
	f.mustFetch(slow)
	f.Wait("the leases end", func() bool { return f.CountRows("leases") == 0 })
	for id, failure := range map[string]string{silent.ID: "visibility_timeout", slow.ID: "timeout"} {
		s := f.mustFind(id)
		if s.State != background.Scheduled || len(s.Failures) != 1 || s.Failures[0].Type != failure || s.Attempt != 1 {
			t.Errorf("%+v", s)
		}
		_, err := f.Ack(ctx, by(s), nil)
		wantConflict(t, err, background.Scheduled)
	}
	f.MustAudit()
}

func TestUniqueJobsStandInEachOthersWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	live := func(s jobs.Status) bool { return s.State.Live() }
	unique := func(n byte, on jobs.OnConflict) func(*jobs.Job) {
		return func(j *jobs.Job) { j.Unique = &jobs.Unique{Fingerprint: [32]byte{n}, Conflicts: live, OnConflict: on} }
	}
	first := f.mustEnqueue(unique(1, jobs.Reject))
	f.mustEnqueue(unique(2, jobs.Reject), func(j *jobs.Job) { j.Queue = "other" })
	var duplicate *jobs.DuplicateError
	if _, err := f.Enqueue(ctx, newJob(unique(1, jobs.Reject))); !errors.As(err, &duplicate) || duplicate.Existing.ID != first.ID || !duplicate.Unique {
		t.Errorf("%v", err)
	}
	if _, err := f.Enqueue(ctx, newJob(unique(1, jobs.Reject), func(j *jobs.Job) { j.ID = first.ID })); !errors.As(err, &duplicate) {
		t.Errorf("%v", err)
	}
	second := f.mustEnqueue(unique(1, jobs.Replace))
	if s := f.mustFind(first.ID); s.State != background.Cancelled {
		t.Errorf("the replaced job is %s", s.State)
	}
	f.mustFetch(second)
	if _, err := f.Enqueue(ctx, newJob(unique(1, jobs.Replace))); !errors.As(err, &duplicate) || duplicate.Existing.ID != second.ID {
		t.Errorf("a job that is held is replaced: %v", err)
	}
	if _, err := f.Ack(ctx, by(second), nil); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	added := 0
	processes := []*fixture{f, f.other()}
	for i := range 16 {
		all.Go(func() {
			_, err := processes[i%2].Enqueue(ctx, newJob(unique(1, jobs.Reject)))
			switch {
			case err == nil:
				mu.Lock()
				added++
				mu.Unlock()
			case !errors.As(err, new(*jobs.DuplicateError)) && !errors.Is(err, background.ErrBusy):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if added != 1 {
		t.Errorf("%d jobs of one fingerprint were added", added)
	}
	f.MustAudit()
}

func TestABadJobIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, change := range map[string]func(*jobs.Job){
		"type":     func(j *jobs.Job) { j.Type = "" },
		"queue":    func(j *jobs.Job) { j.Queue = "" },
		"id":       func(j *jobs.Job) { j.ID = "a b" },
		"priority": func(j *jobs.Job) { j.Priority = 101 },
		"payload":  func(j *jobs.Job) { j.Payload = json.RawMessage(`{`) },
	} {
		var field *refusal.FieldError
		if _, err := f.Enqueue(context.Background(), newJob(change)); !errors.As(err, &field) || field.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	secret := newJob(func(j *jobs.Job) { j.Payload = json.RawMessage(`{"args":[{"password":"hunter2-hunter2"}]}`) })
	if _, err := f.Enqueue(context.Background(), secret); err == nil {
		t.Error("a secret is taken")
	}
	if n := f.CountRows("runs"); n != 0 {
		t.Errorf("%d runs", n)
	}
}

// Jobs with envelopes of a megabyte are all accepted, and a fetch returns a part of them.
func TestLargeJobsAreFetchedInParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 24
	large, err := json.Marshal(map[string]string{"text": strings.Repeat("a", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range n / 4 {
				job := newJob(func(j *jobs.Job) { j.Payload = large })
				if _, err := f.Enqueue(context.Background(), job); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	given := map[string]bool{}
	for len(given) < n {
		got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{newJob().Queue}, Count: jobs.MaxFetch, Worker: "w1"})
		if err != nil || len(got) == 0 || len(got) > 9 {
			t.Fatalf("%d jobs, %v", len(got), err)
		}
		for _, one := range got {
			if given[one.ID] || len(one.Payload) != len(large) {
				t.Errorf("%s: %d bytes, given before: %v", one.ID, len(one.Payload), given[one.ID])
			}
			given[one.ID] = true
		}
	}
	f.fetchNothing()
}

// An attempt fails, too, if its worker says nothing of why. That is the last failure of the job, by its row and by its
// receipts.
func TestAFailureOfWhichNothingIsSaidIsTheLastOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.mustEnqueue(attempts(2, retrypolicy.DeadLetter))
	for _, why := range []background.Failure{refused, {}} {
		f.Wait("it is fetched", func() bool {
			got, err := f.Fetch(t.Context(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1"})
			return err == nil && len(got) == 1
		})
		if _, err := f.Nack(t.Context(), by(s), why, true, background.EndByPolicy); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.mustFind(s.ID); got.State != background.DeadLettered || got.Failure == nil || got.Failure.Type != background.FailureUnspecified || len(got.Failures) != 2 {
		t.Errorf("%+v", got)
	}
	f.MustAudit()
}
