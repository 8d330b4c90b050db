package postadjudication

import (
	"context"
	"errors"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

var (
	outageOf  = flag.Int("outage.adjudications", 600, "adjudications in the outage test")
	outageFor = flag.Duration("outage.lasts", 2*time.Second, "how long the escrow service is down in it")
)

// braking turns the brake on, with all its defaults.
func braking(c *Config) { c.Brake = BrakeRule{} }

// outage is an escrow service that can be down, and notes when it was called.
type outage struct {
	r    *rig
	down atomic.Bool

	mu    sync.Mutex
	calls []time.Time // while it was down
}

func newOutage(r *rig) *outage {
	o := &outage{r: r}
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if !o.down.Load() {
			return r.escrow.pay(c, c.Amount.Minor)
		}
		o.mu.Lock()
		o.calls = append(o.calls, time.Now())
		o.mu.Unlock()
		return busy429()
	}
	return o
}

func (o *outage) callsWhileDown() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]time.Time(nil), o.calls...)
}

func (r *rig) submitAll(from, to int) {
	r.t.Helper()
	as := make([]Adjudication, 0, to-from)
	for i := from; i < to; i++ {
		as = append(as, release(i))
	}
	out, errs := r.SubmitBatch(context.Background(), as)
	for i, err := range errs {
		if err != nil || out[i].Reply != Created {
			r.t.Fatalf("%+v, %v", out[i], err)
		}
	}
}

func (r *rig) brake() Brake {
	r.t.Helper()
	bs, err := r.Brakes(context.Background(), "acme")
	if err != nil || len(bs) != 1 {
		r.t.Fatalf("%+v, %v", bs, err)
	}
	return bs[0]
}

func (r *rig) untilBrake(state background.BrakeState) {
	r.t.Helper()
	r.until("the brake is "+string(state), `SELECT EXISTS (SELECT FROM recourse.brakes WHERE state = $1)`, string(state))
}

// brakeTrail is what the receipts of the only brake tell, oldest first.
func (r *rig) brakeTrail() (subtypes []receipts.Subtype, causes []string) {
	r.t.Helper()
	ids, err := r.journal.OperationsCases(context.Background(), "acme")
	if err != nil || len(ids) != 1 {
		r.t.Fatalf("%v, %v", ids, err)
	}
	trail, err := r.Receipts(context.Background(), "acme", ids[0], 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, rc := range trail {
		p, err := rc.Payload()
		if err != nil || rc.Source != receipts.SourceOperations || rc.Actor == "" {
			r.t.Fatalf("%+v, %v", rc, err)
		}
		subtypes, causes = append(subtypes, rc.Subtype), append(causes, p.ReasonCode)
	}
	return subtypes, causes
}

// An escrow service that is down in the middle of the work turns next to nothing into
// a dispute: what it can't execute is parked, and executed once it is back.
func TestOutageParksTheWorkAndLosesNearlyNothing(t *testing.T) {
	t.Parallel()
	var moves atomic.Int64
	r := newRig(t, braking, func(c *Config) { c.OnBrake = func(background.Brake) { moves.Add(1) } })
	o, n := newOutage(r), *outageOf
	r.work()
	r.submitAll(0, n/3)
	r.until("the work is in full swing", `SELECT count(*) >= $1 FROM recourse.cases WHERE progression = 'settled'`, n/6)
	o.down.Store(true)
	over := time.AfterFunc(*outageFor, func() { o.down.Store(false) })
	defer over.Stop()
	began := time.Now()
	r.submitAll(n/3, n)
	r.until("all has ended, or is down", `SELECT EXISTS (SELECT FROM recourse.brakes WHERE state = 'pulled') OR NOT EXISTS (SELECT FROM recourse.runs WHERE live)`)
	r.atRest()
	took := time.Since(began)
	dead := r.count(`SELECT count(*) FROM recourse.runs WHERE state = 'dead_lettered'`)
	settled := r.count(`SELECT count(*) FROM recourse.cases WHERE progression = 'settled'`)
	t.Logf("%d adjudications, down for %s: %d dead letters, %d settled, at rest after %s, %d calls while down", n, *outageFor, dead, settled, took, len(o.callsWhileDown()))
	if dead > 40 || dead+settled != n || len(r.escrow.effects) != settled {
		t.Errorf("%d dead letters, %d settled, %d paid", dead, settled, len(r.escrow.effects))
	}
	r.untilBrake(background.BrakeReleased)
	subtypes, _ := r.brakeTrail()
	if len(subtypes) < 3 || subtypes[0] != receipts.BrakePulled || subtypes[len(subtypes)-1] != receipts.BrakeReleased || int(moves.Load()) != len(subtypes) {
		t.Errorf("receipts %v, %d told", subtypes, moves.Load())
	}
	r.sound()
}

// While the target is down, all processes together call it once a second, and the
// sweeper rings for nothing that is parked.
func TestPulledBrakeLetsOneProbeASecondThroughFromAllProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, braking)
	o := newOutage(r)
	o.down.Store(true)
	other := joinRig(t, r.url, r.redis, r.escrow, braking).work()
	r.work()
	r.submitAll(0, 60)
	r.untilBrake(background.BrakePulled)
	r.until("nothing runs", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE state = 'running')`)
	before, bells := len(o.callsWhileDown()), r.count(`SELECT sum(bell) FROM recourse.runs`)
	r.until("four probes", `SELECT version >= 5 FROM recourse.brakes`)
	probes := o.callsWhileDown()[before:]
	for i := 1; i < len(probes); i++ { // two processes that do not agree would probe at once
		if gap := probes[i].Sub(probes[i-1]); gap < 300*time.Millisecond {
			t.Errorf("%s between two probes", gap)
		}
	}
	if rung := r.count(`SELECT sum(bell) FROM recourse.runs`) - bells; rung != 0 || len(probes) < 3 {
		t.Errorf("%d bells rung for parked runs, %d probes", rung, len(probes))
	}
	// What is in flight when the brake is pulled may spend its budget.
	if dead := r.count(`SELECT count(*) FROM recourse.runs WHERE state = 'dead_lettered'`); dead > 12 {
		t.Errorf("%d of 60 are dead letters", dead)
	}
	if r.Stats().Braked+other.Stats().Braked != 2 {
		t.Errorf("%+v, %+v", r.Stats(), other.Stats())
	}
	o.down.Store(false)
	r.atRest()
	r.untilBrake(background.BrakeReleased)
	r.sound()
}

// What is let go is let go in the order in which it was due, and no more than a batch
// ahead of what has ended.
func TestParkedRunsAreLetGoInOrderBatchByBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Brake = BrakeRule{Batch: 10, Off: true} })
	var mu sync.Mutex
	var order []string
	r.escrow.script = func(_ context.Context, c Call) Answer {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, c.Run.String())
		return r.escrow.pay(c, c.Amount.Minor)
	}
	if _, err := r.PullBrake(context.Background(), "acme", DefaultTarget, "ops:kim", "maintenance"); err != nil {
		t.Fatal(err)
	}
	r.work()
	r.submitAll(0, 60)
	r.untilTrue("all bells were answered", func() bool { return r.Stats().Parked >= 60 })
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE state = 'pending' AND attempt_count = 0`); n != 60 {
		t.Fatalf("%d parked", n)
	}
	flushed := redis.NewClient(&redis.Options{Addr: r.redis.(asynq.RedisClientOpt).Addr})
	defer func() { _ = flushed.Close() }()
	if err := flushed.FlushAll(context.Background()).Err(); err != nil { // parked runs have no bell to lose
		t.Fatal(err)
	}
	if _, err := r.ReleaseBrake(context.Background(), "acme", DefaultTarget, "ops:kim", "done"); err != nil {
		t.Fatal(err)
	}
	r.atRest()
	r.untilBrake(background.BrakeReleased)
	rows, err := r.db.Query(`SELECT id::text FROM recourse.runs ORDER BY due_at, id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	place, n := map[string]int{}, 0
	for ; rows.Next(); n++ {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		place[id] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for i, id := range order {
		if d := place[id] - i; d > 12 || d < -12 { // a batch, and the fifth of the last that may lag
			t.Errorf("run %d in order was called as number %d", place[id], i)
		}
	}
	r.sound()
}

// A person's pull outlives every process and is not probed; only a person ends it.
func TestManualPullStaysUntilAPersonReleasesIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, braking)
	r.work()
	b, err := r.PullBrake(ctx, "acme", DefaultTarget, "ops:kim", "they asked us to")
	if err != nil || b.State != background.BrakePulled || !b.ByHand || b.Actor != "ops:kim" || b.Cause != background.CauseByHand {
		t.Fatalf("%+v, %v", b, err)
	}
	if again, err := r.PullBrake(ctx, "acme", DefaultTarget, "ops:lee", "again"); err != nil || again != b {
		t.Errorf("%+v, %v", again, err)
	}
	r.submitAll(0, 20)
	foreign := release(99)
	foreign.Tenant = "other"
	r.mustSubmit(foreign)
	r.until("another tenant's run is executed", `SELECT EXISTS (SELECT FROM recourse.cases WHERE tenant = 'other' AND progression = 'settled')`)
	r.stopWork()
	next := joinRig(t, r.url, r.redis, r.escrow, braking).work()
	next.untilTrue("the next process has looked twice", func() bool { return next.Stats().Braked == 1 })
	next.submitAll(20, 30)
	next.untilTrue("it parks what comes", func() bool { return next.Stats().Parked >= 10 })
	if calls := r.escrow.totalCalls(); calls != 1 {
		t.Errorf("%d calls", calls)
	}
	if _, err := next.ReleaseBrake(ctx, "acme", "somebody else", "ops:kim", "x"); !errors.Is(err, ErrBrakeReleased) {
		t.Errorf("%v", err)
	}
	if b, err = next.ReleaseBrake(ctx, "acme", DefaultTarget, "ops:lee", "they are back"); err != nil || b.State != background.BrakeEasing || b.ByHand {
		t.Fatalf("%+v, %v", b, err)
	}
	next.atRest()
	next.untilBrake(background.BrakeReleased)
	if calls := r.escrow.totalCalls(); calls != 31 {
		t.Errorf("%d calls", calls)
	}
	if _, causes := next.brakeTrail(); len(causes) != 3 || causes[2] != background.CauseRecovered {
		t.Errorf("%v", causes)
	}
	next.sound()
}

func TestBrakeOrdersNameWhoAndWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, args := range [][4]string{{"", "escrow", "a", "b"}, {"acme", "", "a", "b"}, {"acme", "escrow", "", "b"}, {"acme", "escrow", "a", ""}, {"acme", "escrow", "a\n", "b"}} {
		var field *FieldError
		if _, err := r.PullBrake(context.Background(), args[0], args[1], args[2], args[3]); !errors.As(err, &field) {
			t.Errorf("%v: %v", args, err)
		}
		if _, err := r.ReleaseBrake(context.Background(), args[0], args[1], args[2], args[3]); !errors.As(err, &field) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if bs, err := r.Brakes(context.Background(), "acme"); err != nil || len(bs) != 0 {
		t.Errorf("%v, %v", bs, err)
	}
}

// An escrow service that takes calls and never answers, and an executor that ignores
// its context: few calls are lost to it.
func TestHangingTargetPullsTheBrake(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.TimeLimit, c.Slots = 100*time.Millisecond, 64
		c.Brake = BrakeRule{Attempts: 1 << 20} // so that only what hangs pulls
	})
	hang, calls := make(chan struct{}), atomic.Int64{}
	r.escrow.script = func(_ context.Context, c Call) Answer {
		calls.Add(1)
		<-hang
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.work()
	r.submitAll(0, 100)
	r.untilBrake(background.BrakePulled)
	r.until("nothing runs", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE state = 'running')`)
	if b := r.brake(); b.Cause != background.CauseHanging || calls.Load() > 2*64+1 {
		t.Errorf("%+v after %d calls", b, calls.Load())
	}
	if s := r.Stats(); s.Abandoned <= 16 {
		t.Errorf("%+v", s)
	}
	close(hang)
	r.atRest()
	r.untilBrake(background.BrakeReleased)
	if dead := r.count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open'`); dead != 0 {
		t.Errorf("%d open letters", dead)
	}
	r.untilTrue("every late answer is in", func() bool { return r.Stats().Abandoned == 0 })
	r.sound()
}

// A run that hangs whenever it is called must not be probed for ever when nothing
// else is parked that could show that the target works.
func TestAFewRunsThatAlwaysHangEndBehindTheBrake(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.TimeLimit, c.Slots = 50*time.Millisecond, 8
		c.Brake = BrakeRule{Attempts: 1 << 20, Abandoned: 1, Probe: 20 * time.Millisecond}
	})
	ended := make(chan struct{})
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if c.Amount.Minor == 1000 {
			<-ended
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.work()
	for n := range 3 {
		r.mustSubmit(release(n))
	}
	r.atRest()
	if dead := r.count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open' AND budget_spent = 3`); dead != 3 {
		t.Errorf("%d open letters", dead)
	}
	good := release(3)
	good.Amount = euros(1)
	r.mustSubmit(good)
	r.atRest()
	close(ended)
	r.untilTrue("every late answer is in", func() bool { return r.Stats().Abandoned == 0 })
	r.sound()
}

// What is let go and fails again closes the brake again, before the runs are lost.
func TestRelapsePullsTheBrakeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, braking)
	o := newOutage(r)
	o.down.Store(true)
	r.work()
	r.submitAll(0, 120)
	r.untilBrake(background.BrakePulled)
	r.until("nothing runs", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE state = 'running')`)
	var once sync.Once
	r.escrow.mu.Lock()
	script := r.escrow.script
	r.escrow.script = func(ctx context.Context, c Call) Answer { // one call is answered, then it is down again
		a, first := Answer{}, false
		once.Do(func() { a, first = r.escrow.pay(c, c.Amount.Minor), true })
		if first {
			return a
		}
		return script(ctx, c)
	}
	r.escrow.mu.Unlock()
	r.untilTrue("it is pulled again", func() bool {
		subtypes, _ := r.brakeTrail()
		return len(subtypes) >= 3 && subtypes[2] == receipts.BrakePulled
	})
	o.down.Store(false)
	r.atRest()
	// What is in flight when the brake is pulled spends its budget; how much that is
	// depends on the machine, but it is never the work of an outage.
	if dead := r.count(`SELECT count(*) FROM recourse.runs WHERE state = 'dead_lettered'`); dead > 12 {
		t.Errorf("%d of 120 are dead letters", dead)
	}
	r.untilBrake(background.BrakeReleased)
	r.sound()
}
