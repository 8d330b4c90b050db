package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

// webhookKey encrypts the secrets of webhooks of the bench.
var webhookKey = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("b", 32)))

// loopback is where the receivers of the bench are.
const loopback = "127.0.0.1/32"

// receiver accepts events as fast as they come, each after a pause, and keeps when each came first.
type receiver struct {
	url    string
	pause  time.Duration
	server *http.Server

	mu   sync.Mutex
	came map[string]time.Duration // from the time of the event to its arrival, by its id
}

func startReceiver(pause time.Duration) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + listener.Addr().String(), pause: pause, came: map[string]time.Duration{}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // it returns when close closes it
	return r, nil
}

func (r *receiver) close() error { return r.server.Close() }

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	time.Sleep(r.pause)
	var e struct {
		ID   string    `json:"id"`
		Time time.Time `json:"time"`
	}
	if err := json.NewDecoder(q.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	lag := time.Since(e.Time)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.came[e.ID]; !again {
		r.came[e.ID] = lag
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.came)
}

// await waits until so many events have come.
func (r *receiver) await(ctx context.Context, n int) error {
	for r.count() < n {
		if err := sleep(ctx, workerPoll); err != nil {
			return fmt.Errorf("%d of %d events have come: %w", r.count(), n, err)
		}
	}
	return nil
}

// lags returns how late the events came.
func (r *receiver) lags() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]time.Duration, 0, len(r.came))
	for _, lag := range r.came {
		out = append(out, lag)
	}
	return out
}

// withWebhooks returns the configuration with which a service sends webhooks to this machine.
func withWebhooks() (webhooks.Config, error) {
	keys, err := webhooks.ParseKeys(webhookKey)
	return webhooks.Config{Keys: keys, Allow: []netip.Prefix{netip.MustParsePrefix(loopback)}}, err
}

// createWebhooks creates webhooks that want the dead letters of the bench's tenant.
func createWebhooks(ctx context.Context, j job, s *postadjudication.Service) error {
	for range j.Webhooks {
		if _, _, err := s.As("bench", "bench").Webhooks.Create(ctx, webhooks.New{URL: j.WebhookURL, Types: []events.Type{events.RunDeadLettered}, Reason: "bench"}); err != nil {
			return err
		}
	}
	return nil
}

// What the workload webhooks measures with.
const (
	sentPerRun    = 5                     // events of a run that succeeds at once
	lagPause      = 25 * time.Millisecond // between two runs: 200 events a second
	lagRuns       = 800
	slowPause     = 500 * time.Millisecond // of the slow receiver
	memoryTenants = 10
	memoryPer     = 10 // webhooks of each of them
)

// measureWebhooks measures deliveries of one process: how many a second from a log that is there, how late
// events come while one receiver is away and one is slow, and the memory that webhooks take.
func measureWebhooks(ctx context.Context, j job) (m metrics, err error) {
	server, err := j.startServer(ctx, "--webhooks-allow", loopback)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	b := webhookBench{job: j, api: jobClient{server.url + "/api/v1", server.client.client, ""}}
	m = metrics{}
	if err := b.throughput(ctx, m); err != nil {
		return nil, err
	}
	if err := b.lateness(ctx, m); err != nil {
		return nil, err
	}
	before, _, err := resident(server.PID())
	if err != nil {
		return nil, err
	}
	if err := b.fillMemory(ctx); err != nil {
		return nil, err
	}
	after, peak, err := resident(server.PID())
	if err != nil {
		return nil, err
	}
	m[residentMB], m[webhooksMB], m[peakMB] = float64(before)/(1<<20), float64(after-before)/(1<<20), float64(peak)/(1<<20)
	return m, nil
}

type webhookBench struct {
	job job
	api jobClient
}

// create creates a webhook of a tenant that sends from the first event on, or from now on.
func (b webhookBench) create(ctx context.Context, tenant, url string, fromFirst bool) error {
	c := b.api
	c.tenant = tenant
	body := map[string]any{"url": url, "reason": "bench"}
	if fromFirst {
		body["after"] = 0
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var made struct {
		ID string `json:"id"`
	}
	return c.post(ctx, "/webhooks", text, http.StatusCreated, &made)
}

// submit submits adjudications of a tenant, side by side without a pause, else one a pause.
func (b webhookBench) submit(ctx context.Context, tenant, prefix string, n int, pause time.Duration) error {
	c := b.api
	c.tenant = tenant
	one := func(i int) error {
		id := fmt.Sprintf("%s_%d", prefix, i)
		text := fmt.Sprintf(`{"transaction_receipt_id":"txr_%[1]s","submission_receipt_id":"sub_%[1]s","adjudication_id":"adj_%[1]s","escrow_reference":"esc_%[1]s","outcome":"release",`+
			`"amount":{"minor":1000,"currency":"EUR"},"held":{"minor":1000,"currency":"EUR"}}`, id)
		var made json.RawMessage
		return c.post(ctx, "/adjudications", []byte(text), http.StatusCreated, &made)
	}
	if pause > 0 {
		for i := range n {
			if err := errors.Join(one(i), sleep(ctx, pause)); err != nil {
				return err
			}
		}
		return nil
	}
	errs, next := make(chan error, 32), make(chan int)
	for range cap(errs) {
		go func() {
			var err error
			for i := range next {
				err = errors.Join(err, one(i))
			}
			errs <- err
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	var err error
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	return err
}

// throughput measures how fast a log is delivered that is there already.
func (b webhookBench) throughput(ctx context.Context, m metrics) (err error) {
	settled, err := startReceiver(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, settled.close()) }()
	if err := b.create(ctx, "bench", settled.url, true); err != nil { // shows when all is settled
		return err
	}
	if err := b.submit(ctx, "bench", "load", b.job.Tasks, 0); err != nil {
		return err
	}
	all := b.job.Tasks * sentPerRun
	if err := settled.await(ctx, all); err != nil {
		return err
	}
	r, err := startReceiver(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	begin := time.Now()
	if err := b.create(ctx, "bench", r.url, true); err != nil {
		return err
	}
	if err := r.await(ctx, all); err != nil {
		return err
	}
	m[perSecond] = float64(all) / time.Since(begin).Seconds()
	return nil
}

// lateness measures how late events come to a receiver that is up, beside one that is slow and one that
// is away.
func (b webhookBench) lateness(ctx context.Context, m metrics) (err error) {
	up, err := startReceiver(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, up.close()) }()
	slow, err := startReceiver(slowPause)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slow.close()) }()
	away, err := startReceiver(0)
	if err != nil {
		return err
	}
	if err := away.close(); err != nil {
		return err
	}
	for _, to := range []string{up.url, slow.url, away.url} {
		if err := b.create(ctx, "late", to, false); err != nil {
			return err
		}
	}
	if err := sleep(ctx, 2*time.Second); err != nil { // until the sender has seen them
		return err
	}
	if err := b.submit(ctx, "late", "late", lagRuns, lagPause); err != nil {
		return err
	}
	if err := up.await(ctx, lagRuns*sentPerRun); err != nil {
		return err
	}
	lags := up.lags()
	m[eventP50], m[eventP99] = milliseconds(percentile(lags, 0.5)), milliseconds(percentile(lags, 0.99))
	return nil
}

// fillMemory creates webhooks of several tenants, has events sent to each, and waits until they have
// come.
func (b webhookBench) fillMemory(ctx context.Context) (err error) {
	r, err := startReceiver(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	const runs = 100
	for t := range memoryTenants {
		tenant := fmt.Sprintf("memory-%d", t)
		for range memoryPer {
			if err := b.create(ctx, tenant, r.url, false); err != nil {
				return err
			}
		}
		if err := b.submit(ctx, tenant, "memory", runs, 0); err != nil {
			return err
		}
	}
	return r.await(ctx, memoryTenants*runs*sentPerRun)
}
