package background

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"
)

// Not parallel: allocations of other tests would be counted.
func TestNothingIsSpentOnTracesWithoutAProvider(t *testing.T) {
	off, ctx, task, run := newTracing(nil), context.Background(), asynq.NewTask("pay", nil), Run{}
	if n := testing.AllocsPerRun(100, func() {
		if off.headers(ctx) != nil {
			t.Error("headers of no trace")
		}
		delivered, _ := off.delivery(ctx, task, run.ID)
		_, ended := off.attempt(off.withDeliverySpan(ctx, delivered), run)
		if id := ended(callOutcome{}); id != "" {
			t.Errorf("trace %q", id)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
