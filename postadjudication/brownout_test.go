package postadjudication_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// An escrow service that fails often is not down: once it answers, the breaker that its failures
// opened gives back the full rate, whatever share of the calls or which tenant fails. Otherwise each case would be a
// probe, because the answers between two failures are never ten in a row.
func TestAnEscrowServiceThatFailsOftenIsNotDown(t *testing.T) {
	t.Parallel()
	const cases = 400
	everyCall := func(failing, of int64) func(int64, string) bool {
		return func(call int64, _ string) bool { return call%of < failing }
	}
	for name, fails := range map[string]func(call int64, tenant string) bool{
		"10%": everyCall(1, 10), "30%": everyCall(3, 10), "60%": everyCall(3, 5),
		"one of four tenants": func(_ int64, tenant string) bool { return tenant == "tenant-0" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var blocks, blocked atomic.Bool
			var calls, whileBlocked, closings atomic.Int64
			r := rig.New(t, withBreakers, func(c *postadjudication.Config) {
				c.OnBreaker = func(b circuit.Breaker) {
					blocks.Store(b.Blocks())
					switch {
					case b.Blocks():
						blocked.Store(true)
					case b.State == circuit.Closed:
						closings.Add(1)
					}
				}
			})
			r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
				call := calls.Add(1)
				if blocks.Load() {
					whileBlocked.Add(1)
				}
				if !blocked.Load() || fails(call, c.Tenant) {
					return rig.NoAnswer()
				}
				return r.Escrow.Pay(c, c.Amount.Minor)
			})
			as := make([]postadjudication.Adjudication, cases)
			for i := range as {
				as[i] = rig.Release(i)
				as[i].Tenant = fmt.Sprintf("tenant-%d", i%4)
			}
			if _, errs := r.SubmitBatch(context.Background(), as); len(errs) != cases || errs[0] != nil {
				t.Fatal(errs[0])
			}
			r.StartWorkers()
			r.WaitNoneLive()
			untilClosed(r)
			t.Logf("%d calls, %d of them while the breaker was not closed; it closed %d times", calls.Load(), whileBlocked.Load(), closings.Load())
			if closings.Load() < 1 || whileBlocked.Load() > calls.Load()/2 {
				t.Errorf("%d of %d calls while the breaker was not closed; it closed %d times", whileBlocked.Load(), calls.Load(), closings.Load())
			}
			r.MustAudit()
		})
	}
}
