package postadjudication

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// setAnswer makes the escrow service answer every call so from now on; nil: it pays.
func (r *rig) setAnswer(answer func() escrow.Answer) {
	r.escrow.mu.Lock()
	defer r.escrow.mu.Unlock()
	r.escrow.script = nil
	if answer != nil {
		r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return answer() }
	}
}

func (r *rig) retry(id background.RunID) (deadletter.Forked, error) {
	return r.As("acme", "user:ada").DeadLetters.Retry(context.Background(), id, "mended")
}

// A job is retried by its first id, however often: each time its newest run is forked, begins at
// attempt 0 with the same policy, and every id leads to the lineage.
func TestAJobIsRetriedByAnyIDOfItsLineage(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	root := r.deadLetter(1, func(escrow.Call) escrow.Answer { return busy429() })
	r.setAnswer(refused)
	first, err := r.retry(root.Run)
	if err != nil || first.State != background.Pending {
		t.Fatalf("%+v, %v", first, err)
	}
	r.untilNoneLive()
	r.setAnswer(nil)
	second, err := r.retry(root.Run) // an old id identifies the job
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	line := []background.RunID{root.Run, first.Run, second.Run}
	for i, id := range line {
		st := r.status(id)
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
	if old, dead, done := r.status(root.Run), r.status(first.Run), r.status(second.Run); old.Letter != background.LetterForked || old.Attempts != 3 ||
		dead.Letter != background.LetterForked || dead.Attempts != 1 || done.State != background.Succeeded || done.Attempts != 1 || done.Policy.Encode() != old.Policy.Encode() {
		t.Errorf("%+v\n%+v\n%+v", old, dead, done)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Runs[0].Replays != 2 || len(c.Runs[2].Parents) != 2 {
		t.Errorf("%+v", c)
	}
	var refused *refusal.RefusedError
	if _, err := r.retry(root.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateNotALetter || refused.Run != second.Run {
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
	r.mustAudit()
}

// Of many concurrent retries and forks, by whatever id, one succeeds.
func TestManyRetriesAndForksAtOnceMakeOne(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	root := r.deadLetter(1, func(escrow.Call) escrow.Answer { return busy429() })
	r.setAnswer(refused)
	fork, err := r.retry(root.Run)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	r.setAnswer(nil)
	var all sync.WaitGroup
	won := make(chan deadletter.Forked, 30)
	for i := range 30 {
		all.Go(func() {
			var s deadletter.Forked
			var err error
			switch i % 3 {
			case 0:
				s, err = r.retry(root.Run)
			case 1:
				s, err = r.retry(fork.Run)
			default:
				s, err = r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), fork.Run, forkRequest)
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
	r.untilNoneLive()
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 3 {
		t.Errorf("%d runs", n)
	}
	r.mustAudit()
}

// If a retry dies, its letter is the open one, and the old one names it as its fork.
func TestARetryThatDiesLeavesItsLetterAndTheOldOnePointsToIt(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	root := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	r.setAnswer(refused)
	next, err := r.retry(root.Run)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	old, now := r.status(root.Run), r.status(next.Run)
	if old.Letter != background.LetterForked || len(old.Forks) != 1 || old.Forks[0] != next.Run || now.Letter != background.LetterOpen || len(now.Parents) != 1 {
		t.Errorf("%+v\n%+v", old, now)
	}
	if p := r.payloadOf(old, receipts.ManualRetryRequested); p.NewRun != next.Run || p.Changes != "" {
		t.Errorf("%+v", p)
	}
	r.mustAudit()
}

// A fork may change policy and queue, and the receipt states the changes. The request stays the
// same, under the same key.
func TestAForkTellsWhatItChanged(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	r := newRig(t)
	letter := func() Submitted {
		return r.deadLetter(1, func(c escrow.Call) escrow.Answer { seen.Store(c.Run, c); return refused() })
	}
	r.startWorkers()
	dead := letter()
	st := r.status(dead.Run)
	to := "settlement:0"
	if st.Queue == to {
		to = "settlement:1"
	}
	ctx := context.Background()
	var wrong *refusal.FieldError
	for _, queue := range []string{"settlement:2", "settlement", "other:0", "settlement:-1", " settlement:0"} {
		q := forkRequest
		q.Queue = queue
		if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, dead.Run, q); !errors.As(err, &wrong) || wrong.Field != "queue" {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
	q := forkRequest
	q.Policy = &retrypolicy.Policy{MaxRetryAttempts: -1}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, dead.Run, q); !errors.As(err, &wrong) || wrong.Field != "policy.max_retry_attempts" {
		t.Errorf("a policy that makes no sense: %v", err)
	}
	q.Policy, q.Queue = &retrypolicy.Policy{MaxRetryAttempts: 2, BaseDelay: 5 * time.Millisecond}, to
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		seen.Store(c.Run, c)
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.escrow.mu.Unlock()
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, dead.Run, q)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	now := r.status(fork.Run)
	if now.Queue != to || now.Policy.MaxRetryAttempts != 2 || now.State != background.Succeeded {
		t.Errorf("%+v", now)
	}
	want := "policy: max_retry_attempts 3 to 2; base_delay 25ms to 5ms; queue: " + st.Queue + " to " + to
	if p := r.payloadOf(r.status(dead.Run), receipts.ManualRetryRequested); p.Changes != want || p.NewRun != fork.Run {
		t.Errorf("%q, want %q", p.Changes, want)
	}
	if p := r.payloadOf(now, receipts.Submitted); p.Queue != to || p.ParentRun != dead.Run {
		t.Errorf("%+v", p)
	}
	first, _ := seen.Load(dead.Run)
	second, _ := seen.Load(fork.Run)
	if a, b := first.(escrow.Call), second.(escrow.Call); string(a.Request) != string(b.Request) || a.OperationKey != b.OperationKey {
		t.Errorf("another request or key: %s %s", a.Request, b.Request)
	}
	r.mustAudit()
}

// A plain task is retried in the same way, and its retry key stays taken
// meanwhile.
func TestATaskIsRetriedByItsFirstID(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{{Name: "chores", Handle: func(ctx context.Context, a background.Attempt) background.Result {
			if mended.Load() && string(a.Run.Payload) == `{"room":7}` {
				return succeedTask(ctx, a)
			}
			return failTask(ctx, a)
		}}}
	}).startWorkers()
	task := Task{Tenant: "acme", Family: "chores", RetryKey: "sweep", Payload: []byte(`{"room":7}`)}
	root, err := r.SubmitTask(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if _, err := r.retry(root.Run); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if again, err := r.SubmitTask(context.Background(), task); err != nil || again.Reply != DeadLettered {
		t.Errorf("%+v, %v", again, err)
	}
	mended.Store(true)
	last, err := r.retry(root.Run)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if st := r.status(last.Run); st.State != background.Succeeded || st.Attempts != 1 || st.Replays != 2 || len(st.Parents) != 2 || st.Parents[0] != root.Run {
		t.Errorf("%+v", st)
	}
	r.mustAudit()
}
