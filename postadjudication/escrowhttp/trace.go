package escrowhttp

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/recourse-dev/recourse/postadjudication"
)

var traceContext propagation.TraceContext

// startSpan begins the span of a call in the trace that ctx is part of. Without a
// trace nothing is done, and ended does nothing.
func startSpan(ctx context.Context, name string) (_ context.Context, endSpan func(postadjudication.Answer) postadjudication.Answer) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, func(a postadjudication.Answer) postadjudication.Answer { return a }
	}
	tracer := parent.TracerProvider().Tracer("github.com/recourse-dev/recourse/postadjudication/escrowhttp")
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	return ctx, func(a postadjudication.Answer) postadjudication.Answer {
		span.SetAttributes(attribute.String("recourse.outcome_class", string(a.Class)), attribute.String("recourse.code", a.Code))
		if a.Class != postadjudication.Executed {
			span.SetStatus(codes.Error, a.Type)
		}
		span.End()
		return a
	}
}

// injectTrace gives the escrow service the trace that ctx is part of, as traceparent.
func injectTrace(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		traceContext.Inject(ctx, propagation.HeaderCarrier(h))
	}
}
