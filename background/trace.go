package background

import (
	"context"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// tracing records the processing of a run as spans. The trace begins at the first notification
// and is carried in the headers of the asynq task; a resent notification has none. Without a
// provider nothing is recorded.
type tracing struct{ tracer trace.Tracer } // nil without a provider

var propagator propagation.TraceContext

func newTracing(p trace.TracerProvider) tracing {
	if p == nil {
		return tracing{}
	}
	return tracing{p.Tracer("github.com/recourse-dev/recourse/background")}
}

// headers returns the headers with ctx's trace; nil when there is none.
func (t tracing) headers(ctx context.Context) map[string]string {
	if t.tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	h := propagation.MapCarrier{}
	propagator.Inject(ctx, h)
	return h
}

// delivery starts the span of a delivery in the trace of its task.
func (t tracing) delivery(ctx context.Context, task *asynq.Task, run RunID) (context.Context, trace.Span) {
	if t.tracer == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx = propagator.Extract(ctx, propagation.MapCarrier(task.Headers()))
	return t.tracer.Start(ctx, "deliver", trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("recourse.run", run.String()), attribute.String("recourse.family", task.Type())))
}

// withDeliverySpan adds a delivery's span to the context of a call, which keeps its own
// cancellation. A probe has no delivery, and begins a trace.
func (t tracing) withDeliverySpan(callCtx, delivered context.Context) context.Context {
	if t.tracer == nil || callCtx == nil {
		return callCtx
	}
	return trace.ContextWithSpan(callCtx, trace.SpanFromContext(delivered))
}

// attempt starts the span of an attempt. endSpan ends it and returns the trace's id.
func (t tracing) attempt(ctx context.Context, run *Run) (_ context.Context, endSpan func(callOutcome) string) {
	if t.tracer == nil {
		return ctx, func(callOutcome) string { return "" }
	}
	ctx, span := t.tracer.Start(ctx, "attempt", trace.WithAttributes(attribute.String("recourse.run", run.ID.String()),
		attribute.String("recourse.tenant", run.Tenant), attribute.Int("recourse.attempt", run.Attempt)))
	return ctx, func(done callOutcome) string {
		span.SetAttributes(attribute.String("recourse.outcome_class", string(done.result.Class)))
		if f := done.result.Failure; f != nil {
			span.SetStatus(codes.Error, f.Type) // the message is redacted elsewhere
		}
		span.End()
		return traceID(ctx)
	}
}

// traceID returns the W3C id of ctx's trace; empty when there is none.
func traceID(ctx context.Context) string {
	if ctx == nil {
		return ""
	}
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}
