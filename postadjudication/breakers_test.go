package postadjudication_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

var (
	outageOf  = flag.Int("outage.adjudications", 600, "adjudications in the outage test")
	outageFor = flag.Duration("outage.lasts", 2*time.Second, "how long the escrow service is down in it")
)

// withBreakers enables circuit breakers with their defaults.
func withBreakers(c *postadjudication.Config) { c.Breaker = postadjudication.BreakerRule{} }

// outage is an escrow service that can be down. It records when it was called.
type outage struct {
	rig  *rig.Rig
	down atomic.Bool

	mu    sync.Mutex
	calls []time.Time // while it was down
}

func newOutage(r *rig.Rig) *outage {
	o := &outage{rig: r}
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if !o.down.Load() {
			return r.Escrow.Pay(c, c.Amount.Minor)
		}
		o.mu.Lock()
		o.calls = append(o.calls, time.Now())
		o.mu.Unlock()
		return rig.RateLimited()
	})
	return o
}

func (o *outage) callsWhileDown() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]time.Time(nil), o.calls...)
}

func submitAll(r *rig.Rig, from, to int) {
	r.T.Helper()
	as := make([]postadjudication.Adjudication, 0, to-from)
	for i := from; i < to; i++ {
		as = append(as, rig.Release(i))
	}
	out, errs := r.SubmitBatch(context.Background(), as)
	for i, err := range errs {
		if err != nil || out[i].Reply != postadjudication.Created {
			r.T.Fatalf("%+v, %v", out[i], err)
		}
	}
}

// breaker returns the only circuit breaker over all tenants.
func breaker(r *rig.Rig) casestatus.Breaker {
	r.T.Helper()
	bs := breakers(r)
	if len(bs) != 1 {
		r.T.Fatalf("%+v", bs)
	}
	return bs[0]
}

// breakers returns the circuit breakers over all tenants.
func breakers(r *rig.Rig) []casestatus.Breaker {
	r.T.Helper()
	bs, err := r.As(postadjudication.AllTenants, "").Breakers.List(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	return bs
}

// untilBreaker waits until an escrow service has a circuit breaker in a state.
func untilBreaker(r *rig.Rig, state circuit.State) {
	r.T.Helper()
	r.Wait("the circuit breaker is "+string(state), func() bool {
		return slices.ContainsFunc(breakers(r), func(b casestatus.Breaker) bool { return b.State == state })
	})
}

// untilClosed waits until no circuit breaker is open.
func untilClosed(r *rig.Rig) {
	r.T.Helper()
	r.WaitBreakersClosed()
}

// breakerReceipts returns the changes in the receipts of a tenant's only circuit breaker,
// oldest first.
func breakerReceipts(r *rig.Rig, tenant string) (subtypes []receipts.Subtype, causes []string) {
	r.T.Helper()
	ids, err := r.AuditReader().OperationLogs(context.Background(), tenant)
	if err != nil || len(ids) != 1 {
		r.T.Fatalf("%v, %v", ids, err)
	}
	trail, err := r.Receipts(context.Background(), tenant, ids[0], 0, 1000)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, rc := range trail {
		p, err := rc.Payload()
		if err != nil || rc.Source != receipts.SourceOperations || rc.Actor == "" {
			r.T.Fatalf("%+v, %v", rc, err)
		}
		subtypes, causes = append(subtypes, rc.Subtype), append(causes, p.ReasonCode)
	}
	return subtypes, causes
}

// An outage of the escrow service during work causes almost no disputes: runs that it can't
// execute are paused, and executed once it is back.
func TestOutagePausesTheWorkAndLosesNearlyNothing(t *testing.T) {
	t.Parallel()
	var moves atomic.Int64
	r := rig.New(t, withBreakers, func(c *postadjudication.Config) { c.OnBreaker = func(circuit.Breaker) { moves.Add(1) } })
	o, n := newOutage(r), *outageOf
	r.StartWorkers()
	submitAll(r, 0, n/3)
	r.Wait("the work is in full swing", func() bool { return r.CountCases(rig.Cases{Progression: settlement.Settled}) >= n/6 })
	o.down.Store(true)
	over := time.AfterFunc(*outageFor, func() { o.down.Store(false) })
	defer over.Stop()
	began := time.Now()
	submitAll(r, n/3, n)
	r.WaitNoneLive()
	took := time.Since(began)
	dead := r.CountRuns(rig.Runs{State: background.DeadLettered})
	settled := r.CountCases(rig.Cases{Progression: settlement.Settled})
	t.Logf("%d adjudications, down for %s: %d dead letters, %d settled, at rest after %s, %d calls while down", n, *outageFor, dead, settled, took, len(o.callsWhileDown()))
	// Runs that are called while the breaker opens may spend their budget, on a busy machine a few more.
	if dead > n/50 || dead+settled != n || r.Escrow.Payments() != settled {
		t.Errorf("%d dead letters, %d settled, %d paid", dead, settled, r.Escrow.Payments())
	}
	untilClosed(r)
	subtypes, _ := breakerReceipts(r, postadjudication.AllTenants)
	if len(subtypes) < 2 || subtypes[0] != receipts.BreakerOpened || subtypes[len(subtypes)-1] != receipts.BreakerReleased || int(moves.Load()) != len(subtypes) {
		t.Errorf("receipts %v, %d notified", subtypes, moves.Load())
	}
	r.WaitBreakerRecorded(1)
	if subtypes, causes := breakerReceipts(r, "acme"); len(subtypes)%2 != 0 || subtypes[0] != receipts.BreakerOpened || subtypes[len(subtypes)-1] != receipts.BreakerReleased {
		t.Errorf("receipts %v %v", subtypes, causes)
	}
	r.MustAudit()
}

// While the target is down, one leader probes it for all processes, and the sweeper sends no
// notifications for paused runs.
func TestOneProcessProbesAnOpenBreaker(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withBreakers)
	o := newOutage(r)
	o.down.Store(true)
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withBreakers).StartWorkers()
	r.StartWorkers()
	submitAll(r, 0, 60)
	untilBreaker(r, circuit.Open)
	r.WaitAllCalled()
	before, notified := len(o.callsWhileDown()), r.TotalNotifications()
	r.Wait("three probes without a new case", func() bool { return len(o.callsWhileDown()) >= before+3 })
	probes := o.callsWhileDown()[before:]
	for i := 1; i < len(probes); i++ { // without a single leader two processes would probe at the same time
		if gap := probes[i].Sub(probes[i-1]); gap < 300*time.Millisecond {
			t.Errorf("%s between two probes", gap)
		}
	}
	if sent := r.TotalNotifications() - notified; sent != 0 {
		t.Errorf("%d notifications for paused runs", sent)
	}
	// Runs in flight when the breaker opens may spend their budget.
	if dead := r.CountRuns(rig.Runs{State: background.DeadLettered}); dead > 60/10 {
		t.Errorf("%d of 60 are dead letters", dead)
	}
	r.Wait("both know", func() bool { return r.Health().Stats().BreakersNotClosed+other.Health().Stats().BreakersNotClosed == 2 })
	o.down.Store(false)
	r.WaitNoneLive()
	untilClosed(r)
	r.MustAudit()
}

// A lost leader is replaced.
func TestALeaderThatIsLostIsReplaced(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withBreakers)
	o := newOutage(r)
	o.down.Store(true)
	r.StartWorkers()
	submitAll(r, 0, 20)
	untilBreaker(r, circuit.Open)
	r.StopWorkers()
	o.down.Store(false)
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withBreakers).StartWorkers()
	r.WaitNoneLive()
	untilClosed(r)
	r.MustAudit()
}

// Cases that fail for their own reasons are not an outage: good cases queued behind them
// settle, and the bad ones become letters.
func TestGoodCasesSettleBesideMoreThatAlwaysFail(t *testing.T) {
	t.Parallel()
	const bad, good = 40, 20
	r := rig.New(t, withBreakers)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 1000 {
			return escrow.Answer{Class: escrow.Unknown, Retry: true, Type: "http.status", Code: "500", Message: "internal error"}
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	submitAll(r, 0, bad)
	untilBreaker(r, circuit.Open)
	for n := range good { // one by one, so that none closes the breaker for the next
		a := rig.Release(bad + n)
		a.Amount = rig.Euros(1)
		s := r.MustSubmit(a)
		r.WaitState(s.Run, background.Succeeded)
		if n == 0 {
			if dead := r.CountLetters(background.LetterOpen); dead == bad {
				t.Error("the first good one waited until the last bad one was dead")
			}
		}
	}
	r.WaitNoneLive()
	if dead := r.CountRuns(rig.Runs{Letter: background.LetterOpen, Spent: 3}); dead != bad {
		t.Errorf("%d letters of %d", dead, bad)
	}
	if settled := r.CountRuns(rig.Runs{State: background.Succeeded}); settled != good {
		t.Errorf("%d settled of %d", settled, good)
	}
	r.MustAudit()
}

// If many runs fail and none succeeds, they are paused, this is reported and raises an alarm,
// and the status of each names the circuit breaker.
func TestManyThatFailWithNothingBesideWaitAndSaySo(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Breaker = postadjudication.BreakerRule{ProbeInterval: 5 * time.Millisecond, StalledAfter: time.Second, LeaderTimeout: 200 * time.Millisecond}
	})
	o := newOutage(r)
	o.down.Store(true)
	r.StartWorkers()
	submitAll(r, 0, 20)
	r.Wait("the stalled breaker is reported", func() bool { _, stalled := r.Health().Breakers(); return len(stalled) == 1 && stalled[0].Paused == 20 })
	if s := r.Health().Stats(); s.StalledBreakers != 1 || s.StalledRuns != 20 {
		t.Errorf("%+v", s)
	}
	r.WaitNoneRunning()
	c := r.CaseOf(rig.Release(1))
	by := c.Runs[0].PausedBy
	if len(by) != 1 || by[0].Tenant != postadjudication.AllTenants || by[0].Target != escrow.DefaultTarget || by[0].State != circuit.Open || by[0].Since == nil || by[0].Reason == "" || c.Runs[0].WaitsFor != casestatus.WaitsForBreaker {
		t.Errorf("%+v", by)
	}
	o.down.Store(false)
	r.WaitNoneLive()
	untilClosed(r)
	r.Wait("the stalled breaker is no longer reported", func() bool { open, stalled := r.Health().Breakers(); return len(open)+len(stalled) == 0 })
	if st, err := r.Status(context.Background(), "acme", c.Runs[0].Run); err != nil || st.PausedBy != nil {
		t.Errorf("%+v, %v", st.PausedBy, err)
	}
	r.MustAudit()
}

// A few failing runs with no others die of their own failures.
func TestFewThatFailWithNothingBesideEnd(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Breaker = postadjudication.BreakerRule{ProbeInterval: 5 * time.Millisecond, FallbackInterval: 5 * time.Millisecond, FewPausedFor: 100 * time.Millisecond, LeaderTimeout: 100 * time.Millisecond}
	})
	o := newOutage(r)
	o.down.Store(true)
	r.StartWorkers()
	submitAll(r, 0, 9)
	r.WaitNoneLive()
	if dead := r.CountRuns(rig.Runs{Letter: background.LetterOpen, Spent: 3}); dead != 9 {
		t.Errorf("%d letters", dead)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.circuit_breakers WHERE tenant = '' AND few_since >= opened_at - interval '1 s' AND opening > 0`); n != 1 {
		t.Errorf("%d breakers say since when few runs are paused", n)
	}
	r.MustAudit()
}

// Runs that hang on every call must not be probed forever if no other paused run could show
// that the target works.
func TestAFewRunsThatAlwaysHangEndBehindTheBreaker(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit, c.Slots = 50*time.Millisecond, 8
		c.Breaker = postadjudication.BreakerRule{MinAttempts: 1 << 20, Consecutive: 1 << 20, ConsecutiveAtLast: 1 << 20, MaxAbandoned: 1,
			ProbeInterval: 5 * time.Millisecond, FallbackInterval: 5 * time.Millisecond, FewPausedFor: 100 * time.Millisecond, LeaderTimeout: 100 * time.Millisecond}
	})
	ended := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 1000 {
			<-ended
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	for n := range 3 {
		r.MustSubmit(rig.Release(n))
	}
	r.WaitNoneLive()
	if dead := r.CountRuns(rig.Runs{Letter: background.LetterOpen, Spent: 3}); dead != 3 {
		t.Errorf("%d open letters", dead)
	}
	good := rig.Release(3)
	good.Amount = rig.Euros(1)
	r.MustSubmit(good)
	r.WaitNoneLive()
	close(ended)
	r.Wait("every late answer has arrived", func() bool { return r.Health().Stats().Abandoned == 0 })
	r.MustAudit()
}

// Long calls release their slots to others.
func TestSlowCallsLeaveTheirSlots(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Slots, c.TimeLimit = 4, 30*time.Second })
	answer := make(chan struct{})
	var out atomic.Int64
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 1000 {
			out.Add(1)
			<-answer
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	submitAll(r, 0, 30)
	r.Wait("four times as many calls as slots are in flight", func() bool { return out.Load() == 16 })
	if n := r.Health().Stats().Running; n != 16 {
		t.Errorf("%d calls", n)
	}
	close(answer)
	r.WaitNoneLive()
	r.MustAudit()
}

// A breaker of one tenant that an older version opened automatically is closed with a receipt.
func TestABreakerFromBeforeIsClosedWithAReceipt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := rig.New(t, withBreakers)
	if _, err := r.As("acme", "breaker:old").Breakers.Open(ctx, escrow.DefaultTarget, "20 of the last 20 attempts failed"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.DB.Exec(`UPDATE recourse.circuit_breakers SET state = 'half_open', by_hand = false`); err != nil { // as older versions left it
		t.Fatal(err)
	}
	submitAll(r, 0, 3)
	r.StartWorkers()
	r.WaitNoneLive()
	untilClosed(r)
	if subtypes, causes := breakerReceipts(r, "acme"); len(subtypes) != 2 || subtypes[1] != receipts.BreakerReleased || causes[1] != circuit.CauseReplaced {
		t.Errorf("%v %v", subtypes, causes)
	}
	r.MustAudit()
}

// noLookup is an executor without lookups, whose keys may not be used again.
type noLookup struct{ e *rig.Escrow }

func (n noLookup) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	return n.e.Execute(ctx, c)
}
func (noLookup) KeyLifetime() time.Duration { return 0 }

// A paused run that can neither be called again nor looked up is not kept: it would wait
// forever.
func TestPausedRunsThatCanNeitherBeCalledNorAskedAboutEnd(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Executor = noLookup{c.Executor.(*rig.Escrow)}
		c.Breaker = postadjudication.BreakerRule{ProbeInterval: 5 * time.Millisecond, FallbackInterval: 50 * time.Millisecond}
	})
	var down atomic.Bool
	down.Store(true)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if down.Load() {
			return rig.NoAnswer()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	submitAll(r, 0, 40)
	r.StartWorkers()
	untilBreaker(r, circuit.Open)
	r.WaitNoneLive()
	if dead := r.CountRuns(rig.Runs{Letter: background.LetterOpen, Reason: background.ReasonOutcomeUnknown}); dead != 40 {
		t.Errorf("%d letters", dead)
	}
	down.Store(false)
	submitAll(r, 100, 103) // three answered calls close the breaker
	r.WaitNoneLive()
	untilClosed(r)
	r.MustAudit()
}

// A paused run that can't be called again is looked up once the escrow service answers. An
// outage during which lookups fail does not turn it into a dead letter.
func TestPausedRunsAreNotLostToAKeyThatExpires(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		e := c.Executor.(*rig.Escrow)
		e.KeyLife, e.LookupLife = time.Millisecond, escrow.Forever
		c.Lookups.FirstPause = 100 * time.Millisecond
		c.Breaker = postadjudication.BreakerRule{ProbeInterval: 5 * time.Millisecond, FallbackInterval: 50 * time.Millisecond}
	})
	var down atomic.Bool
	var asked atomic.Int64
	down.Store(true)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if down.Load() {
			return rig.NoAnswer()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer {
		if asked.Add(1); down.Load() {
			return rig.NoAnswer()
		}
		return escrow.Answer{Class: escrow.NotExecuted}
	})
	r.StartWorkers()
	submitAll(r, 0, 30)
	untilBreaker(r, circuit.Open)
	r.WaitAllCalled()
	before := asked.Load()
	r.Wait("lookups fail", func() bool { return asked.Load() >= before+5 })
	dead := r.CountLetters(background.LetterOpen)
	down.Store(false)
	r.WaitNoneLive()
	untilClosed(r)
	if settled := r.CountRuns(rig.Runs{State: background.Succeeded}); dead > 5 || settled != 30-dead {
		t.Errorf("%d dead letters, %d settled of 30", dead, settled)
	}
}
