package app

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// The standard variables of OTLP endpoints. The exporter itself reads these and the other variables
// of the specification.
const (
	otlpVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTracesVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// tracesProxy returns what names the proxy of a request to the collector. Without Options.Proxy there is none.
func (o *Options) tracesProxy() otlptracehttp.HTTPTransportProxyFunc {
	if o.Proxy {
		return http.ProxyFromEnvironment
	}
	return func(*http.Request) (*url.URL, error) { return nil, nil }
}

// withoutSecret returns the host of a URL.
func withoutSecret(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "" // its text may be a secret
	}
	return u.Host
}

// traceFlushTimeout is how long Close waits to export the remaining spans.
const traceFlushTimeout = 3 * time.Second

// startTracing exports spans over OTLP/HTTP if the options name a collector.
func (m *Main) startTracing(ctx context.Context) error {
	if m.Tracer != nil || m.Options.TracesURL == "" {
		return nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithProxy(m.Options.tracesProxy()))
	if err != nil {
		return fmt.Errorf("exporting traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "recourse")), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("exporting traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	m.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), traceFlushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil { // no failure of the stop: spans are no evidence
			m.Log.Warn("the last spans were not exported", zap.String("collector", withoutSecret(m.Options.TracesURL)), zap.Error(err))
		}
		return nil
	})
	m.Tracer = provider
	return nil
}
