package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs"
)

// jobClient speaks Open Job Spec with a server, as clients and workers do.
type jobClient struct {
	url    string
	client *http.Client
	tenant string // empty: the server's own
}

// newJobClient returns a client of the server at a URL.
func newJobClient(url string) jobClient {
	return jobClient{url + ojs.Prefix + "/v1", &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: preloaders}}, ""}
}

// fetchedJob is a job as a worker gets it.
type fetchedJob struct {
	ID      string            `json:"id"`
	Args    []json.RawMessage `json:"args"`
	Attempt int               `json:"attempt"`
}

// post sends a request and decodes the answer.
func (c jobClient) post(ctx context.Context, path string, body []byte, status int, answer any) error {
	return c.send(ctx, http.MethodPost, path, body, status, answer)
}

// get asks for what is at a path, and decodes the answer.
func (c jobClient) get(ctx context.Context, path string, answer any) error {
	return c.send(ctx, http.MethodGet, path, nil, http.StatusOK, answer)
}

func (c jobClient) send(ctx context.Context, method, path string, body []byte, status int, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.tenant != "" {
		r.Header.Set("Recourse-Tenant", c.tenant)
	}
	a, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	if a.StatusCode != status {
		return fmt.Errorf("%s: %d %s", path, a.StatusCode, text)
	}
	return json.Unmarshal(text, answer)
}

// enqueue adds a job, and returns its id.
func (c jobClient) enqueue(ctx context.Context, body []byte) (id string, err error) {
	var made struct {
		Job struct {
			ID string `json:"id"`
		} `json:"job"`
	}
	err = c.post(ctx, "/jobs", body, http.StatusCreated, &made)
	return made.Job.ID, err
}

// fetch asks for jobs by the body of a fetch.
func (c jobClient) fetch(ctx context.Context, want []byte) ([]fetchedJob, error) {
	var fetched struct {
		Jobs []fetchedJob `json:"jobs"`
	}
	err := c.post(ctx, "/workers/fetch", want, http.StatusOK, &fetched)
	return fetched.Jobs, err
}

// wantOne is the body of the fetch by which a worker asks for a job of a queue.
func wantOne(queue string, worker int) []byte {
	return fmt.Appendf(nil, `{"queues":[%q],"count":1,"worker_id":"w%d"}`, queue, worker)
}

// ack says that a worker has done a job.
func (c jobClient) ack(ctx context.Context, id string, worker int) error {
	var answer json.RawMessage
	return c.post(ctx, "/workers/ack", fmt.Appendf(nil, `{"job_id":%q,"worker_id":"w%d"}`, id, worker), http.StatusOK, &answer)
}

// nack says that an attempt failed. It returns when the next one is due; zero if there is none.
func (c jobClient) nack(ctx context.Context, id string, worker int, failure string) (next time.Time, err error) {
	var answer struct {
		NextAttemptAt time.Time `json:"next_attempt_at"`
	}
	err = c.post(ctx, "/workers/nack", fmt.Appendf(nil, `{"job_id":%q,"worker_id":"w%d","error":%s}`, id, worker, failure), http.StatusOK, &answer)
	return answer.NextAttemptAt, err
}
