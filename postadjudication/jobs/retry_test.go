package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

var again = jobs.Retry{Reason: "the mailbox exists now"}

// mustDie enqueues a job whose only attempt fails, and which is a dead letter then.
func (f *fixture) mustDie(change ...func(*jobs.Job)) jobs.Status {
	f.t.Helper()
	s := f.mustEnqueue(append([]func(*jobs.Job){attempts(1, retrypolicy.DeadLetter)}, change...)...)
	f.mustFail(s)
	return f.mustFind(s.ID)
}

func (f *fixture) mustFail(s jobs.Status) {
	f.t.Helper()
	f.mustFetch(s)
	if after, err := f.Nack(context.Background(), by(s), refused, true, background.EndByPolicy); err != nil || after.State != background.DeadLettered {
		f.t.Fatalf("%s, %v", after.State, err)
	}
}

func TestARetryKeepsTheJobAndItsHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie(func(j *jobs.Job) { j.Priority = 7 })
	retried, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, again)
	if err != nil {
		t.Fatal(err)
	}
	if retried.ID != dead.ID || retried.Case != dead.Case || retried.Run == dead.Run || retried.State != background.Pending || retried.Attempt != 0 || retried.Priority != 7 || !retried.Retried {
		t.Errorf("%+v", retried)
	}
	if retried.CreatedAt != dead.CreatedAt || !retried.EnqueuedAt.After(dead.EnqueuedAt) || retried.Failure != nil || len(retried.Failures) != 1 || string(retried.Payload) != string(dead.Payload) {
		t.Errorf("%+v", retried)
	}
	f.mustFail(retried)
	second := f.mustFind(dead.ID)
	if len(second.Failures) != 2 || second.Failures[0].Cycle != 1 || second.Failures[1].Cycle != 2 || second.Failures[1].Attempt != 1 || !second.DeadAt.After(dead.DeadAt) {
		t.Errorf("%+v", second)
	}
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, again); err != nil {
		t.Fatal(err)
	}
	f.mustFetch(dead)
	if done, err := f.Ack(ctx, by(dead), nil); err != nil || done.State != background.Succeeded {
		t.Errorf("%+v, %v", done, err)
	}
	f.wantSubtypes(dead, receipts.Submitted, receipts.AttemptStarted, receipts.DeadLettered, receipts.ManualRetryRequested, receipts.Submitted, receipts.AttemptStarted, receipts.DeadLettered,
		receipts.ManualRetryRequested, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptSucceeded)
	f.MustAudit()
}

func TestARetryChangesWhatItSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie()
	policy := retrypolicy.Policy{MaxRetryAttempts: 5, BaseDelay: time.Second, OnExhaustion: retrypolicy.Discard}
	changed := json.RawMessage(`{"args":["b"]}`)
	retried, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, jobs.Retry{Reason: "another address", Of: dead.Run, Queue: "later", Policy: &policy, Payload: changed})
	if err != nil || retried.Queue != "later" || string(retried.Payload) != string(changed) || retried.Policy.MaxRetryAttempts != 5 {
		t.Fatalf("%+v, %v", retried, err)
	}
	fetched := f.mustFetch(retried)
	if string(fetched.Payload) != string(changed) {
		t.Errorf("a worker gets %s", fetched.Payload)
	}
	rs, err := f.Receipts(ctx, "acme", dead.Case, 3, 1)
	if err != nil || len(rs) != 1 {
		t.Fatalf("%v, %v", rs, err)
	}
	p, err := rs[0].Known()
	if err != nil || p.Changes == "" || rs[0].Actor != "service:shop" || p.Reason != "another address" {
		t.Errorf("%+v, %v", p, err)
	}
	for name, q := range map[string]jobs.Retry{
		"reason":  {Queue: "never"},
		"queue":   {Reason: "r", Queue: "line\nbreak"},
		"payload": {Reason: "r", Payload: json.RawMessage(`{"password":"hunter2-hunter2"}`)},
		"no JSON": {Reason: "r", Payload: json.RawMessage(`{"args":`)},
		"empty":   {Reason: "r", Payload: json.RawMessage{}},
		"long":    {Reason: "r", Payload: json.RawMessage(`"` + strings.Repeat("x", jobs.MaxPayload) + `"`)},
	} {
		if _, err := f.Jobs.DeadLetters().Retry(ctx, f.mustDie().ID, q); !errors.As(err, new(*refusal.FieldError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	queues, _, err := f.Queues().List(ctx, mail, 0, 10)
	if err != nil || slices.ContainsFunc(queues, func(q jobs.Queue) bool { return q.Name == "never" }) || !slices.ContainsFunc(queues, func(q jobs.Queue) bool { return q.Name == "later" }) {
		t.Errorf("%+v, %v", queues, err)
	}
	f.MustAudit()
}

// The payload of a task that is no job can't be replaced: its submitter stated it.
func TestOnlyTheEnvelopeOfAJobIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Message: "no broom"}}
		}}}
	})
	f.StartWorkers()
	task, err := f.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "sweep", Payload: []byte(`{"room":7}`)})
	if err != nil {
		t.Fatal(err)
	}
	f.WaitNoneLive()
	letters := f.As("acme", "user:ada").DeadLetters
	var field *refusal.FieldError
	if _, err := letters.Fork(context.Background(), task.Run, deadletter.Fork{Reason: "another room", Payload: []byte(`{"room":8}`)}); !errors.As(err, &field) || field.Field != "payload" {
		t.Errorf("%v", err)
	}
	if _, err := letters.Fork(context.Background(), task.Run, deadletter.Fork{Reason: "again"}); err != nil {
		t.Error(err)
	}
}

func TestOnlyADeadLetterIsRetriedOrDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	waiting := f.mustEnqueue()
	discarded := f.mustEnqueue(attempts(1, retrypolicy.Discard), func(j *jobs.Job) { j.Queue = "other" })
	f.mustFetch(discarded)
	if _, err := f.Nack(ctx, by(discarded), refused, true, background.EndByPolicy); err != nil {
		t.Fatal(err)
	}
	for state, id := range map[background.State]string{background.Pending: waiting.ID, background.Discarded: discarded.ID} {
		_, err := f.Jobs.DeadLetters().Retry(ctx, id, again)
		wantConflict(t, err, state)
		wantConflict(t, f.Jobs.DeadLetters().Delete(ctx, id, "no more"), state)
	}
	if _, err := f.Jobs.DeadLetters().Retry(ctx, "no-such-job", again); !errors.Is(err, refusal.ErrNotFound) {
		t.Error(err)
	}
	if _, err := f.As("other", "service:shop").Jobs.DeadLetters().Retry(ctx, waiting.ID, again); !errors.Is(err, refusal.ErrNotFound) {
		t.Error(err)
	}
	f.MustAudit()
}

func TestADeletedJobIsNotFoundAndItsIdStaysTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie()
	if err := f.Jobs.DeadLetters().Delete(ctx, dead.ID, "nobody needs it"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Find(ctx, dead.ID); !errors.Is(err, refusal.ErrNotFound) {
		t.Error(err)
	}
	if err := f.Jobs.DeadLetters().Delete(ctx, dead.ID, "again"); !errors.Is(err, refusal.ErrNotFound) {
		t.Error(err)
	}
	if page, err := f.Jobs.DeadLetters().List(ctx, jobs.Query{Limit: 10}); err != nil || page.Total != 0 || len(page.Jobs) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	var duplicate *jobs.DuplicateError
	if _, err := f.Enqueue(ctx, newJob(func(j *jobs.Job) { j.ID = dead.ID })); !errors.As(err, &duplicate) {
		t.Error(err)
	}
	if n := f.CountRuns(rig.Runs{WithPayload: true}); n != 0 {
		t.Error("the envelope is kept")
	}
	f.wantSubtypes(dead, receipts.Submitted, receipts.AttemptStarted, receipts.DeadLettered, receipts.Purged)
	f.MustAudit()
}

// Of retries and deletions at once one succeeds. The others are told what became of the job.
func TestRetriesAndDeletionsHaveOneWinner(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	processes := []*fixture{f, f.other()}
	for range 8 {
		dead := f.mustDie()
		var won atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				p, err := processes[i%2], error(nil)
				if i/2%2 == 0 {
					_, err = p.Jobs.DeadLetters().Retry(ctx, dead.ID, again)
				} else {
					err = p.Jobs.DeadLetters().Delete(ctx, dead.ID, "no more")
				}
				switch {
				case err == nil:
					won.Add(1)
				case !errors.As(err, new(*jobs.ConflictError)) && !errors.Is(err, refusal.ErrNotFound):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%d callers won", won.Load())
		}
		if s, err := f.Find(ctx, dead.ID); err == nil {
			f.mustFetch(s)
			if _, err := f.Ack(ctx, by(s), nil); err != nil {
				t.Error(err)
			}
		}
	}
	f.MustAudit()
}

// A dead letter does not stand in the way of a unique job, and can't be retried while that one lives.
func TestARetryDoesNotMakeTwoLiveHolders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	unique := func(j *jobs.Job) {
		j.Unique = &jobs.Unique{Fingerprint: [32]byte{9}, Conflicts: func(s jobs.Status) bool { return s.State.Live() }, OnConflict: jobs.Reject}
	}
	dead := f.mustDie(unique)
	live := f.mustEnqueue(unique)
	var gate *refusal.RefusedError
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, again); !errors.As(err, &gate) || gate.Gate != refusal.GateUniqueJobLive {
		t.Fatal(err)
	}
	if holder, err := f.Jobs.DeadLetters().UniqueHolder(ctx, dead); err != nil || holder != live.ID {
		t.Errorf("%q, %v", holder, err)
	}
	if _, err := f.Cancel(ctx, live.ID, "not needed"); err != nil {
		t.Fatal(err)
	}
	third := f.mustDie(unique)
	processes := []*fixture{f, f.other()}
	var won atomic.Int32
	var all sync.WaitGroup
	for i, id := range []string{dead.ID, third.ID, dead.ID, third.ID} {
		all.Go(func() {
			_, err := processes[i%2].Jobs.DeadLetters().Retry(ctx, id, again)
			switch {
			case err == nil:
				won.Add(1)
			case !errors.As(err, new(*jobs.ConflictError)) && !errors.As(err, new(*refusal.RefusedError)) && !errors.Is(err, background.ErrBusy):
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		_, err := f.Enqueue(ctx, newJob(unique))
		switch {
		case err == nil:
			won.Add(1)
		case !errors.As(err, new(*jobs.DuplicateError)):
			t.Error(err)
		}
	})
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d live jobs hold one fingerprint", won.Load())
	}
	f.MustAudit()
}

func TestReplacingAJobKeepsItsSchedule(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	unique := func(keep bool) func(*jobs.Job) {
		return func(j *jobs.Job) {
			j.Unique = &jobs.Unique{Fingerprint: [32]byte{5}, Conflicts: func(s jobs.Status) bool { return s.State.Live() }, OnConflict: jobs.Replace, KeepSchedule: keep}
		}
	}
	first := f.mustEnqueue(unique(false), func(j *jobs.Job) { j.NotBefore = at })
	second := f.mustEnqueue(unique(true))
	if !second.DueAt.Equal(at) || f.mustFind(first.ID).State != background.Cancelled {
		t.Errorf("%+v", second)
	}
	if third := f.mustEnqueue(unique(false)); third.DueAt.Equal(at) {
		t.Errorf("%+v", third)
	}
	f.MustAudit()
}

// What this process does with dead letters is reported once it is committed, and only then.
func TestReceiptsOfDeadLettersAreReported(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reported []string
	report := func(c *postadjudication.Config) {
		c.OnLetterReceipt = func(letter background.Run, subtype receipts.Subtype, actor string) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, strings.Join([]string{letter.Queue, string(subtype), actor}, " "))
		}
	}
	want := func(all ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(reported, all) {
			t.Errorf("%q, want %q", reported, all)
		}
		reported = nil
	}
	f := newFixture(t, report)
	ctx := context.Background()
	first, second, third := f.mustDie(), f.mustDie(), f.mustDie()
	want()
	if _, err := f.Jobs.DeadLetters().Retry(ctx, first.ID, jobs.Retry{Reason: "r", Queue: "other"}); err != nil {
		t.Fatal(err)
	}
	want("mail manual-retry-requested service:shop")
	if _, err := f.Jobs.DeadLetters().Retry(ctx, first.ID, jobs.Retry{Reason: "r"}); err == nil {
		t.Error("retried twice")
	}
	want()
	if err := f.Jobs.DeadLetters().Delete(ctx, second.ID, "r"); err != nil {
		t.Fatal(err)
	}
	want("mail purged service:shop")
	p := f.NewPruner(withJobs, report).At(181 * 24 * time.Hour)
	if _, err := p.Prune(ctx); err != nil {
		t.Fatal(err)
	}
	want("mail retention-expired system:retention")
	if _, err := f.Find(ctx, third.ID); !errors.Is(err, refusal.ErrNotFound) {
		t.Error(err)
	}
}
