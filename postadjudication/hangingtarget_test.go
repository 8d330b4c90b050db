package postadjudication_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// Few calls are lost to an escrow service that never answers, even with an executor that
// ignores its context.
func TestHangingTargetOpensTheBreaker(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit, c.Slots = 100*time.Millisecond, 64
		c.Breaker = postadjudication.BreakerRule{Consecutive: 1 << 20, ConsecutiveAtLast: 1 << 20, MinAttempts: 1 << 20} // so that only hanging calls open the breaker
	})
	hang, calls := make(chan struct{}), atomic.Int64{}
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		calls.Add(1)
		<-hang
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	submitAll(r, 0, 100)
	untilBreaker(r, circuit.Open)
	r.WaitNoneRunning()
	if b := breaker(r); b.Cause != circuit.CauseHanging || calls.Load() > 2*64+1 {
		t.Errorf("%+v after %d calls", b, calls.Load())
	}
	if s := r.Health().Stats(); s.Abandoned <= 16 {
		t.Errorf("%+v", s)
	}
	close(hang)
	submitAll(r, 100, 120) // probes: the other runs may all have been called before the breaker opened
	r.WaitNoneLive()
	untilClosed(r)
	if dead := r.CountLetters(background.LetterOpen); dead != 0 {
		t.Errorf("%d open letters", dead)
	}
	r.Wait("every late answer is in", func() bool { return r.Health().Stats().Abandoned == 0 })
	r.MustAudit()
}

// Calls that hang while the escrow service answers others are no outage: their runs become
// letters, and no breaker opens.
func TestCallsThatHangBesideAnsweredOnesPauseNobody(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit, c.Slots = 500*time.Millisecond, 64 })
	hang, hung := make(chan struct{}), atomic.Int64{}
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 13 {
			hung.Add(1)
			<-hang
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	ctx, stop := context.WithCancel(t.Context())
	var feeding sync.WaitGroup
	feeding.Go(func() {
		for i := 1000; ctx.Err() == nil; i++ {
			if _, err := r.Submit(context.Background(), rig.Release(i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 30 {
		a := rig.Release(i)
		a.Amount.Minor = 13
		r.MustSubmit(a)
	}
	r.Wait("far more hang than may", func() bool { return hung.Load() >= 3*17 && r.Health().Stats().Abandoned >= 2*17 })
	stop()
	feeding.Wait()
	if opened := r.CountReceipts(rig.Receipts{Subtype: receipts.BreakerOpened}); opened != 0 {
		t.Errorf("%d circuit breakers opened: %+v", opened, breaker(r))
	}
	close(hang)
	r.WaitNoneLive()
	r.Wait("every late answer is in", func() bool { return r.Health().Stats().Abandoned == 0 })
	r.MustAudit()
}

// hangingLookups is an asynchronous escrow service that accepts calls, and does not answer lookups.
type hangingLookups struct {
	*rig.Escrow
	hang chan struct{}
	hung *atomic.Int64
}

func (hangingLookups) Execute(context.Context, escrow.Call) escrow.Answer { return rig.Accepted() }

func (h hangingLookups) Lookup(context.Context, escrow.Call) escrow.Answer {
	h.hung.Add(1)
	<-h.hang
	return rig.NoAnswer()
}

// An escrow service whose lookups hang takes no lookup of another service: what that one accepted settles.
func TestLookupsThatHangHoldUpNoOtherService(t *testing.T) {
	t.Parallel()
	hang, hung := make(chan struct{}), atomic.Int64{}
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Slots, c.TimeLimit = 2, time.Minute
		c.Targets = []postadjudication.Target{{Name: "hanging", Executor: hangingLookups{rig.NewEscrow(), hang, &hung}}}
	})
	defer close(hang)
	r.Escrow.Answer(rig.Accepts)
	r.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer { return answerExecuted(c.Amount.Minor) })
	r.StartWorkers()
	for i := range 8 {
		a := rig.Release(i)
		a.Target = "hanging"
		r.MustSubmit(a)
	}
	r.Wait("the service has as many lookups as it may", func() bool { return hung.Load() == 2 })
	s := r.MustSubmit(rig.Release(100))
	r.WaitState(s.Run, background.Succeeded)
	if n := hung.Load(); n != 2 {
		t.Errorf("%d lookups of the service hang", n)
	}
}
