package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A server lets so many tenants wait in so many polls each.
const (
	pollTenants    = 8
	pollsPerTenant = 32
)

// pollsSettle is how long the polls wait before the memory of the server is read.
const pollsSettle = 3 * time.Second

// polls measures long polls of OpenWOP: the memory that a server has for as many as it takes, and how long
// after the commit of an event the poll of its run is answered.
func (j job) polls(ctx context.Context) (m metrics, err error) {
	server, err := j.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	p := pollers{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pollTenants * pollsPerTenant}}, server: server}
	if err := p.createRuns(ctx); err != nil {
		return nil, err
	}
	before, _, err := resident(server.PID())
	if err != nil {
		return nil, err
	}
	lags := make([]time.Duration, len(p.runs))
	var answered error
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range p.runs {
		all.Go(func() {
			lag, err := p.poll(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			lags[i], answered = lag, errors.Join(answered, err)
		})
	}
	if err := sleep(ctx, pollsSettle); err != nil {
		return nil, err
	}
	waiting, _, err := resident(server.PID())
	if err != nil {
		return nil, err
	}
	if err := p.startAttempts(ctx); err != nil {
		return nil, err
	}
	all.Wait()
	if answered != nil {
		return nil, answered
	}
	return metrics{
		residentMB: float64(before) / (1 << 20), pollsMB: float64(waiting-before) / (1 << 20),
		eventP50: milliseconds(percentile(lags, 0.5)), eventP99: milliseconds(percentile(lags, 0.99)),
	}, nil
}

// pollers are the clients of the runs.
type pollers struct {
	client *http.Client
	server *serverProcess
	runs   []polledRun
}

// polledRun is a run that waits for a remote worker.
type polledRun struct{ tenant, id string }

// send sends a request of a tenant and decodes the answer.
func (p *pollers) send(ctx context.Context, tenant, method, path, body string, status int, answer any) error {
	c := jobClient{p.server.url, p.client, tenant}
	return c.send(ctx, method, path, []byte(body), status, answer)
}

// createRuns creates the runs.
func (p *pollers) createRuns(ctx context.Context) error {
	for t := range pollTenants {
		tenant := fmt.Sprintf("tenant-%d", t)
		for n := range pollsPerTenant {
			var made struct {
				ID string `json:"runId"`
			}
			body := fmt.Sprintf(`{"workflowId":"settlement","inputs":{"transaction_receipt_id":"txr_%d","submission_receipt_id":"sub_%d","adjudication_id":"adj_%d","escrow_reference":"esc_%d",`+
				`"outcome":"release","amount":{"minor":1000,"currency":"EUR"},"held":{"minor":1000,"currency":"EUR"},"target":"queue:polled"}}`, n, n, n, n)
			if err := p.send(ctx, tenant, http.MethodPost, "/v1/runs", body, http.StatusCreated, &made); err != nil {
				return err
			}
			p.runs = append(p.runs, polledRun{tenant, made.ID})
		}
	}
	return nil
}

// poll waits for the first event of a run, and returns how long after its commit it came.
func (p *pollers) poll(ctx context.Context, i int) (time.Duration, error) {
	var got struct {
		Events []struct {
			At time.Time `json:"timestamp"`
		} `json:"events"`
	}
	if err := p.send(ctx, p.runs[i].tenant, http.MethodGet, "/v1/runs/"+p.runs[i].id+"/events/poll?timeout=60", "", http.StatusOK, &got); err != nil {
		return 0, err
	}
	if len(got.Events) == 0 {
		return 0, fmt.Errorf("the poll of run %s ended without an event", p.runs[i].id)
	}
	return time.Since(got.Events[0].At), nil
}

// startAttempts has a worker fetch each run, and so begin its first attempt.
func (p *pollers) startAttempts(ctx context.Context) error {
	for _, r := range p.runs {
		var fetched struct {
			Jobs []fetchedJob `json:"jobs"`
		}
		if err := p.send(ctx, r.tenant, http.MethodPost, "/ojs/v1/workers/fetch", `{"queues":["polled"],"worker_id":"w1","visibility_timeout_ms":60000}`, http.StatusOK, &fetched); err != nil {
			return err
		}
		if len(fetched.Jobs) != 1 {
			return fmt.Errorf("a fetch of %s got %d jobs", r.tenant, len(fetched.Jobs))
		}
	}
	return nil
}
