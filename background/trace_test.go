package background

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Not parallel: allocations of other tests would be counted.
func TestNothingIsSpentOnTracesWithoutAProvider(t *testing.T) {
	off, ctx, task, run := newTracing(nil), context.Background(), asynq.NewTask("pay", nil), Run{}
	if n := testing.AllocsPerRun(100, func() {
		if off.headers(ctx) != nil {
			t.Error("headers of no trace")
		}
		delivered, _ := off.delivery(ctx, task, run.ID)
		_, ended := off.attempt(off.withDeliverySpan(ctx, delivered), &run)
		if id := ended(callOutcome{}); id != "" {
			t.Errorf("trace %q", id)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An attempt continues the trace of its delivery. The attempt of a probe, which has none, begins one.
func TestTheAttemptOfAProbeBeginsATrace(t *testing.T) {
	t.Parallel()
	provider := sdk.NewTracerProvider()
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	on := newTracing(provider)
	delivered, span := on.delivery(t.Context(), asynq.NewTask("pay", nil), RunID{})
	defer span.End()
	for _, of := range []context.Context{delivered, nil} {
		_, ended := on.attempt(on.withDeliverySpan(t.Context(), of), &Run{})
		if id := ended(callOutcome{}); id == "" || (id == traceID(delivered)) != (of != nil) {
			t.Errorf("of %v: trace %q, its delivery %q", of, id, traceID(delivered))
		}
	}
}
