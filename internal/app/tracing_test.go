package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
)

// busyThenPaid is an escrow service that answers busy to the first call of a key, pays at the second,
// and records the trace headers.
func busyThenPaid(t *testing.T) (url string, traceparents func() []string) {
	t.Helper()
	var mu sync.Mutex
	var parents []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		parents = append(parents, r.Header.Get("traceparent"))
		if len(parents) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		body, err := json.Marshal(map[string]any{"operation_key": r.Header.Get("Idempotency-Key"), "status": "executed",
			"moved": map[string]any{"minor": 100, "currency": "USD"}, "reference": "r"})
		if err != nil {
			t.Error(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), parents...)
	}
}

func settleOne(t *testing.T, o app.Options, m *app.Main, settled <-chan struct{}) {
	t.Helper()
	start(t, o, m)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	<-settled
	stop() // ends the deliveries, and with them their spans
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
}

// signal is closed when a run has succeeded.
func signal() (onTransition func(background.Transition, background.Run), settled chan struct{}) {
	settled = make(chan struct{})
	return func(_ background.Transition, after background.Run) {
		if after.State == background.Succeeded {
			close(settled)
		}
	}, settled
}

func TestOneTraceLeadsFromSubmitToTheEscrowServiceAndIntoTheReceipts(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	url, traceparents := busyThenPaid(t)
	onTransition, settled := signal()
	o := options(t)
	o.Embedded, o.EscrowURL, o.KeyLifetime = false, url, app.Lifetime{Given: true}
	m := &app.Main{OnTransition: onTransition, Tracer: provider}
	settleOne(t, o, m, settled)

	parents := map[string]string{}
	names := map[string]int{}
	id := ""
	for _, s := range spans.GetSpans() {
		if id == "" {
			id = s.SpanContext.TraceID().String()
		}
		if got := s.SpanContext.TraceID().String(); got != id {
			t.Errorf("span %s is of trace %s, the first of %s", s.Name, got, id)
		}
		names[s.Name]++
		parents[s.SpanContext.SpanID().String()] = s.Name
	}
	for name, want := range map[string]int{"submit": 1, "deliver": 1, "attempt": 2, "execute": 2} {
		if names[name] != want {
			t.Errorf("%d spans %q, not %d: %v", names[name], name, want, names)
		}
	}
	above := map[string]string{"submit": "", "deliver": "submit", "attempt": "deliver", "execute": "attempt"}
	for _, s := range spans.GetSpans() {
		if got := parents[s.Parent.SpanID().String()]; got != above[s.Name] {
			t.Errorf("%s is below %q, not %q", s.Name, got, above[s.Name])
		}
	}
	for _, parent := range traceparents() {
		if part := strings.Split(parent, "-"); len(part) != 4 || part[1] != id || parents[part[2]] != "execute" {
			t.Errorf("the escrow service received %q of trace %s", parent, id)
		}
	}
	c, err := m.Service.Case(t.Context(), "acme", "txr_1")
	if err != nil {
		t.Fatal(err)
	}
	trail, err := m.Service.Receipts(t.Context(), "acme", c.Case, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range trail[1:] {
		if p, err := r.Payload(); err != nil || p.TraceID != id {
			t.Errorf("%s carries trace %q: %v", r.Subtype, p.TraceID, err)
		}
	}
}

func TestNoTraceContextIsSentWithoutAProvider(t *testing.T) {
	t.Parallel()
	url, traceparents := busyThenPaid(t)
	onTransition, settled := signal()
	o := options(t)
	o.Embedded, o.EscrowURL, o.KeyLifetime = false, url, app.Lifetime{Given: true}
	settleOne(t, o, &app.Main{OnTransition: onTransition}, settled)
	for _, parent := range traceparents() {
		if parent != "" {
			t.Errorf("received %q", parent)
		}
	}
}

// Not parallel: the exporter reads the environment of the process.
func TestSpansGoWhereTheEnvironmentSays(t *testing.T) {
	got := make(chan string, 16)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && strings.Contains(string(body), "recourse") {
			got <- r.URL.Path
		}
	}))
	defer collector.Close()
	m := submitTraced(t, &app.Main{}, collector.URL)
	if err := m.Close(); err != nil { // exports the remaining spans
		t.Fatal(err)
	}
	select {
	case path := <-got:
		if path != "/v1/traces" {
			t.Errorf("sent to %s", path)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was exported")
	}
}

// submitTraced starts a server that exports its spans to a collector, and submits an adjudication.
func submitTraced(t *testing.T, m *app.Main, collector string) *app.Main {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
	m.Options = options(t)
	if err := m.Parse(func(name string) string {
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			return collector
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	return m
}

// Not parallel: the exporter reads the environment of the process.
func TestACollectorThatNeverAnswersFailsNoStop(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil { // to its end: else the server does not see that the client leaves
			<-r.Context().Done()
		}
	}))
	defer silent.Close()
	core, logged := observer.New(zap.WarnLevel)
	m := submitTraced(t, &app.Main{Log: zap.New(core)}, silent.URL)
	if err := m.Close(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	if n := logged.FilterMessage("the last spans were not exported").Len(); n != 1 {
		t.Errorf("%d lines of the log say that spans were lost", n)
	}
}
