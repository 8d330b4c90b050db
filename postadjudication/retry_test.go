package postadjudication_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

func retry(r *rig.Rig, id background.RunID) (deadletter.Forked, error) {
	return r.As("acme", "user:ada").DeadLetters.Retry(context.Background(), id, "mended")
}

// A job is retried by its first id, however often: each time its newest run is forked, begins at
// attempt 0 with the same policy, and every id leads to the lineage.
func TestAJobIsRetriedByAnyIDOfItsLineage(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	root := r.DeadLetter(1, rig.RateLimits)
	r.Escrow.Answer(rig.Refuses)
	first, err := retry(r, root.Run)
	if err != nil || first.State != background.Pending {
		t.Fatalf("%+v, %v", first, err)
	}
	r.WaitNoneLive()
	r.Escrow.Script(nil)
	second, err := retry(r, root.Run) // an old id identifies the job
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	line := []background.RunID{root.Run, first.Run, second.Run}
	for i, id := range line {
		st := r.StatusOf(id)
		if st.Replays != 2 || len(st.Parents) != i || len(st.Forks) != 2-i {
			t.Fatalf("run %d: %+v", i, st)
		}
		for k, p := range append(append(append([]background.RunID(nil), st.Parents...), id), st.Forks...) {
			if p != line[k] {
				t.Errorf("run %d has %s at %d of its lineage, want %s", i, p, k, line[k])
			}
		}
		l, err := r.Lineage(context.Background(), "acme", id)
		if err != nil || l.Root != root.Run || l.Newest != second.Run || l.Replays != 2 || len(l.Runs) != 3 {
			t.Errorf("lineage by run %d: %+v, %v", i, l, err)
		}
	}
	if old, dead, done := r.StatusOf(root.Run), r.StatusOf(first.Run), r.StatusOf(second.Run); old.Letter != background.LetterForked || old.Attempts != 3 ||
		dead.Letter != background.LetterForked || dead.Attempts != 1 || done.State != background.Succeeded || done.Attempts != 1 || done.Policy.Encode() != old.Policy.Encode() {
		t.Errorf("%+v\n%+v\n%+v", old, dead, done)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Runs[0].Replays != 2 || len(c.Runs[2].Parents) != 2 {
		t.Errorf("%+v", c)
	}
	var refused *refusal.RefusedError
	if _, err := retry(r, root.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateNotALetter || refused.Run != second.Run {
		t.Errorf("a job that has succeeded: %v", err)
	}
	for _, tenant := range []string{"", "other"} {
		if _, err := r.As(tenant, "user:ada").DeadLetters.Retry(context.Background(), root.Run, "mended"); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
		if _, err := r.Lineage(context.Background(), tenant, root.Run); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	r.MustAudit()
}

// Of many concurrent retries and forks, by whatever id, one succeeds.
func TestManyRetriesAndForksAtOnceMakeOne(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	root := r.DeadLetter(1, rig.RateLimits)
	r.Escrow.Answer(rig.Refuses)
	fork, err := retry(r, root.Run)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	r.Escrow.Script(nil)
	var all sync.WaitGroup
	won := make(chan deadletter.Forked, 30)
	for i := range 30 {
		all.Go(func() {
			var s deadletter.Forked
			var err error
			switch i % 3 {
			case 0:
				s, err = retry(r, root.Run)
			case 1:
				s, err = retry(r, fork.Run)
			default:
				s, err = r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), fork.Run, rig.ForkRequest)
			}
			var refused *refusal.RefusedError
			switch {
			case err == nil:
				won <- s
			case !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen && refused.Gate != refusal.GateNotALetter:
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d forks", len(won))
	}
	r.WaitNoneLive()
	if n := r.CountRows("runs"); n != 3 {
		t.Errorf("%d runs", n)
	}
	r.MustAudit()
}

// If a retry dies, its letter is the open one, and the old one names it as its fork.
func TestARetryThatDiesLeavesItsLetterAndTheOldOnePointsToIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	root := r.DeadLetter(1, rig.Refuses)
	r.Escrow.Answer(rig.Refuses)
	next, err := retry(r, root.Run)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	old, now := r.StatusOf(root.Run), r.StatusOf(next.Run)
	if old.Letter != background.LetterForked || len(old.Forks) != 1 || old.Forks[0] != next.Run || now.Letter != background.LetterOpen || len(now.Parents) != 1 {
		t.Errorf("%+v\n%+v", old, now)
	}
	if p := payloadOf(r, old, receipts.ManualRetryRequested); p.NewRun != next.Run || p.Changes != "" {
		t.Errorf("%+v", p)
	}
	r.MustAudit()
}

// A fork may change policy and queue, and the receipt states the changes. The request stays the
// same, under the same key.
func TestAForkTellsWhatItChanged(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	r := rig.New(t)
	letter := func() postadjudication.Submitted {
		return r.DeadLetter(1, func(c escrow.Call) escrow.Answer { seen.Store(c.Run, c); return rig.Refused() })
	}
	r.StartWorkers()
	dead := letter()
	st := r.StatusOf(dead.Run)
	to := "settlement:0"
	if st.Queue == to {
		to = "settlement:1"
	}
	ctx := context.Background()
	var wrong *refusal.FieldError
	for _, queue := range []string{"settlement:2", "settlement", "other:0", "settlement:-1", " settlement:0"} {
		q := rig.ForkRequest
		q.Queue = queue
		if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, dead.Run, q); !errors.As(err, &wrong) || wrong.Field != "queue" {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
	q := rig.ForkRequest
	q.Policy = &retrypolicy.Policy{MaxRetryAttempts: -1}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, dead.Run, q); !errors.As(err, &wrong) || wrong.Field != "policy.max_retry_attempts" {
		t.Errorf("a policy that makes no sense: %v", err)
	}
	q.Policy, q.Queue = &retrypolicy.Policy{MaxRetryAttempts: 2, BaseDelay: 5 * time.Millisecond}, to
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		seen.Store(c.Run, c)
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, dead.Run, q)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	now := r.StatusOf(fork.Run)
	if now.Queue != to || now.Policy.MaxRetryAttempts != 2 || now.State != background.Succeeded {
		t.Errorf("%+v", now)
	}
	want := "policy: max_retry_attempts 3 to 2; base_delay 25ms to 5ms; queue: " + st.Queue + " to " + to
	if p := payloadOf(r, r.StatusOf(dead.Run), receipts.ManualRetryRequested); p.Changes != want || p.NewRun != fork.Run {
		t.Errorf("%q, want %q", p.Changes, want)
	}
	if p := payloadOf(r, now, receipts.Submitted); p.Queue != to || p.ParentRun != dead.Run {
		t.Errorf("%+v", p)
	}
	first, _ := seen.Load(dead.Run)
	second, _ := seen.Load(fork.Run)
	if a, b := first.(escrow.Call), second.(escrow.Call); string(a.Request) != string(b.Request) || a.OperationKey != b.OperationKey {
		t.Errorf("another request or key: %s %s", a.Request, b.Request)
	}
	r.MustAudit()
}

// A plain task is retried in the same way, and its retry key stays taken
// meanwhile.
func TestATaskIsRetriedByItsFirstID(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(ctx context.Context, a background.Attempt) background.Result {
			if mended.Load() && string(a.Run.Payload) == `{"room":7}` {
				return rig.SucceedTask(ctx, a)
			}
			return failTask(ctx, a)
		}}}
	}).StartWorkers()
	task := postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "sweep", Payload: []byte(`{"room":7}`)}
	root, err := r.SubmitTask(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if _, err := retry(r, root.Run); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if again, err := r.SubmitTask(context.Background(), task); err != nil || again.Reply != postadjudication.DeadLettered {
		t.Errorf("%+v, %v", again, err)
	}
	mended.Store(true)
	last, err := retry(r, root.Run)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if st := r.StatusOf(last.Run); st.State != background.Succeeded || st.Attempts != 1 || st.Replays != 2 || len(st.Parents) != 2 || st.Parents[0] != root.Run {
		t.Errorf("%+v", st)
	}
	r.MustAudit()
}
