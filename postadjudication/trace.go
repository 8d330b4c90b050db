package postadjudication

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startSpan begins the span of a submission, in the caller's trace if there is one. The
// bell that is rung in it takes the trace along to the attempts.
func (s *Service) startSpan(ctx context.Context, tenant string) (_ context.Context, endSpan func(Submitted, error)) {
	if s.tracer == nil {
		return ctx, func(Submitted, error) {}
	}
	ctx, span := s.tracer.Start(ctx, "submit", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attribute.String("recourse.tenant", tenant)))
	return ctx, func(out Submitted, err error) {
		span.SetAttributes(attribute.String("recourse.reply", string(out.Reply)), attribute.String("recourse.run", out.Run.String()))
		if err != nil {
			span.SetStatus(codes.Error, "not known to be submitted") // the error's text may hold what only logs redact
		}
		span.End()
	}
}
