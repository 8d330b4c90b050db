package app

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop"
	"github.com/recourse-dev/recourse/postadjudication"
)

const (
	headerTimeout  = 10 * time.Second
	answerTimeout  = 30 * time.Second // streams set their own
	maxHeaderBytes = 16 << 10
	// shutdownGrace is how long Close waits for pages in flight.
	shutdownGrace = 2 * time.Second
)

// Main is a process that executes settlements. Fill Options, by Bind or by hand, then call
// Parse, Start, Run and Close, in this order. Close may be called at any time after Parse.
type Main struct {
	Options      Options
	Log          *zap.Logger                                         // no log if nil
	OnTransition func(m background.Transition, after background.Run) // called after each committed transition; it must not block
	Now          func() time.Time                                    // clock of a simulation; this machine's if nil
	DemoHandler  http.Handler                                        // handler of /demo/; no /demo/ if nil

	// Tracer receives the spans. If it is nil, Start exports spans to OTEL_EXPORTER_OTLP_ENDPOINT
	// if the environment sets that; otherwise nothing is traced.
	Tracer trace.TracerProvider

	// Set by Start.
	Service        *postadjudication.Service
	Redis          asynq.RedisConnOpt
	URL            string          // URL of the pages; empty if none are served
	MetricsURL     string          // URL of /metrics, and of /readyz in full; URL unless the options name another listener
	DatabaseURL    string          // URL of the database; it may hold a password
	KeysRequired   bool            // requests to the API and asynqmon need an access key
	EscrowURL      string          // base URL of the escrow service
	WebhooksSent   bool            // events are sent to webhooks while Run runs
	EmbeddedEscrow *EmbeddedEscrow // the embedded escrow service; nil when there is none
	// How long the escrow service recognises operation keys in calls and in lookups.
	KeyLifetime, LookupLifetime Lifetime

	metrics       *metrics
	testMode      *door.TestMode         // nil: none
	fixtures      openwop.Fixtures       // in test mode
	gcConfigured  bool                   // the environment sets GOGC
	unreadyReason atomic.Pointer[string] // the last logged reasons for not being ready
	closers       []func() error
}

// Parse fills options that no flag set from the environment, and checks all. Its errors are
// ErrOptions.
func (m *Main) Parse(getenv func(string) string) error {
	m.Options.FromEnvironment(getenv)
	m.gcConfigured = getenv(gcVariable) != ""
	if m.Log == nil {
		m.Log = zap.NewNop()
	}
	return m.Options.check()
}

// Start starts the private servers, the escrow service for demonstrations, the service and the
// pages, but executes nothing. It creates the schema in a private Postgres; any other must have
// it. Call Close also after an error.
func (m *Main) Start(ctx context.Context) error {
	if m.Options.TestMode {
		m.testMode = &door.TestMode{}
		m.Options.Breaker.Disabled = true // workflows that always fail must not hold up each other's runs
		m.Now, m.Options.Tenant = m.testMode.Now, cmp.Or(m.Options.Tenant, "test")
	}
	redisLog.set(m.Log)
	m.onClose(func() error { redisLog.clear(m.Log); return nil }) // the last of all
	databaseURL, redisURL, err := m.startServers(ctx)
	if err != nil {
		return err
	}
	if err := CheckDatabaseURL(databaseURL); err != nil {
		return err
	}
	m.DatabaseURL = databaseURL
	if m.Redis, err = ParseRedis(redisURL); err != nil {
		return err
	}
	escrow, err := m.Options.startEscrow()
	if err != nil {
		return err
	}
	m.onClose(func() error { escrow.Close(); return nil })
	m.EscrowURL, m.EmbeddedEscrow = escrow.url, escrow.embedded
	m.KeyLifetime, m.LookupLifetime = Lifetime{escrow.client.KeyLifetime(), true}, Lifetime{escrow.client.LookupLifetime(), true}
	if err := m.startTracing(ctx); err != nil {
		return err
	}
	m.metrics = newMetrics()
	config := postadjudication.Config{
		DatabaseURL: databaseURL, Redis: m.Redis, Executor: escrow.Executor, Targets: escrow.Targets, PaymentQueues: m.Options.PaymentQueues, Demonstration: escrow.embedded != nil, TimeLimit: m.Options.TimeLimit, Logger: m.Log, Tracer: m.Tracer, Now: m.Now, Simulated: m.Now != nil,
		Jobs: !m.Options.NoOJS, Breaker: m.Options.Breaker, Lookups: m.Options.Lookups, MaxRecoveries: int(m.Options.MaxRecoveries), Remote: m.Options.RemoteWorkers(),
		OnLetterReceipt: m.metrics.jobs.countReceipt, OnLetterOpened: m.metrics.countDeath,
		OnBreaker: func(now circuit.Breaker) { m.metrics.breakerTransitions.WithLabelValues(string(now.State)).Inc() },
		OnTransition: func(tr background.Transition, after background.Run) {
			m.metrics.countTransition(tr, after)
			if m.OnTransition != nil {
				m.OnTransition(tr, after)
			}
		},
	}
	if m.testMode != nil {
		config.Families = m.fixtures.Families()
	}
	if config.Webhooks, err = m.Options.WebhookConfig(); err != nil {
		return err
	}
	m.WebhooksSent = !config.Webhooks.Keys.Empty()
	if err := m.Options.Retention.apply(&config); err != nil {
		return err
	}
	if m.Service, err = postadjudication.Open(ctx, config); err != nil {
		return err
	}
	m.onClose(m.Service.Close)
	m.fixtures.Service = m.Service
	if err := m.Service.Health().MayRun(); err != nil {
		return optionError("%w", err)
	}
	m.metrics.registerCollectors(m.Service.Health(), time.Now(), m.Log)
	if err := m.startHTTP(ctx); err != nil {
		return err
	}
	from := build.Read()
	m.Log.Info("started", zap.String("version", from.Version), zap.String("revision", from.Revision), zap.String("go", from.Go),
		zap.String("url", m.URL), zap.String("escrow", m.EscrowURL), zap.Bool("keys_needed", m.KeysRequired), zap.String("key_lifetime", m.KeyLifetime.String()),
		zap.Bool("webhooks_sent", m.WebhooksSent))
	return nil
}

// startServers starts a private Postgres and Redis if the options name none, and returns the URLs.
func (m *Main) startServers(ctx context.Context) (databaseURL, redisURL string, err error) {
	databaseURL, redisURL = m.Options.DatabaseURL, m.Options.RedisURL
	if databaseURL == "" {
		if databaseURL, err = m.startPostgres(ctx); err != nil {
			return "", "", err
		}
	}
	if redisURL == "" {
		if redisURL, err = m.startRedis(); err != nil {
			return "", "", err
		}
	}
	return databaseURL, redisURL, nil
}

// startHTTP starts to listen and to serve. A port in use is an error of Start.
func (m *Main) startHTTP(ctx context.Context) error {
	var err error
	if address := m.Options.MetricsListen; address != "" {
		if m.MetricsURL, err = m.serve(ctx, address, m.metricsRoutes(), func() {}); err != nil {
			return err
		}
	}
	if m.Options.Listen == "" {
		return nil
	}
	monitor := newMonitor(m.Redis)
	m.onClose(monitor.Close)
	shared, err := m.startDoor()
	if err != nil {
		return err
	}
	apiServer, err := api.New(m.Service, shared, m.Log)
	if err != nil {
		return err
	}
	pages := m.routes(monitor, apiServer)
	if !m.Options.NoOJS {
		m.serveJobs(pages, shared)
	}
	if !m.Options.NoOpenWOP {
		if err := m.serveRuns(ctx, pages, shared); err != nil {
			return err
		}
	}
	if m.URL, err = m.serve(ctx, m.Options.Listen, forbidFraming(withoutRedirects(pages)), shared.Stop); err != nil {
		return err
	}
	m.MetricsURL = cmp.Or(m.MetricsURL, m.URL)
	return nil
}

// serve serves pages until Close, which first calls stopping to end streams. It returns the URL
// of the pages.
func (m *Main) serve(ctx context.Context, address string, pages http.Handler, stopping func()) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", optionError("cannot listen at %s (%w): choose another address", address, err)
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTimeout, WriteTimeout: answerTimeout, MaxHeaderBytes: maxHeaderBytes}
	server.RegisterOnShutdown(stopping)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.Log.Error("serving the pages failed", zap.String("address", address), zap.Error(err))
		}
	})
	m.onClose(func() error {
		defer serving.Wait()
		return stop(server)
	})
	return "http://" + listener.Addr().String(), nil
}

// startDoor returns what the HTTP doors share. They require no access key on loopback with the escrow
// service for demonstrations, unless RequireKeys is set.
func (m *Main) startDoor() (*door.Door, error) {
	m.KeysRequired = m.Options.RequireKeys || !m.Options.loopback() || m.EmbeddedEscrow == nil
	level, err := m.Options.requestLevel()
	if err != nil {
		return nil, err
	}
	config := door.Config{Service: m.Service, Test: m.testMode, Log: m.Log, RequestLevel: level, OnRefusal: func(code string) { m.metrics.refusals.WithLabelValues(code).Inc() }}
	if !m.KeysRequired {
		config.Keyless = &door.Keyless{Tenant: m.Options.Tenant}
	}
	shared, err := door.New(config)
	if err != nil {
		return nil, err
	}
	m.onClose(func() error { shared.Stop(); return nil })
	m.metrics.registry.MustRegister(expiringKeys{shared})
	return shared, nil
}

func stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	return err
}

// Run executes settlements until ctx ends, and then waits for running attempts. The pages are
// served until Close.
func (m *Main) Run(ctx context.Context) error {
	defer m.tuneGC(gcTuneInterval)()
	defer context.AfterFunc(ctx, func() { m.Log.Info("stopping: no new runs are claimed, running attempts may finish") })()
	err := m.Service.Run(ctx)
	done := m.Service.Health().Stats()
	m.Log.Info("stopped", zap.Int("left_running", done.Running), zap.Error(err))
	return err
}

func (m *Main) onClose(f func() error) { m.closers = append(m.closers, f) }

// Close releases what Start opened, in reverse order. A second Close does nothing.
func (m *Main) Close() error {
	var errs []error
	for len(m.closers) > 0 {
		last := len(m.closers) - 1
		errs = append(errs, m.closers[last]())
		m.closers = m.closers[:last]
	}
	return errors.Join(errs...)
}
