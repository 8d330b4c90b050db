package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/recourse-dev/recourse/internal/ojs"
)

// jobClient speaks Open Job Spec with a server, as clients and workers do.
type jobClient struct {
	url    string
	client *http.Client
}

// newJobClient returns a client of the server at a URL.
func newJobClient(url string) jobClient {
	return jobClient{url + ojs.Prefix + "/v1", &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: preloaders}}}
}

// fetchedJob is a job as a worker gets it.
type fetchedJob struct {
	ID      string            `json:"id"`
	Args    []json.RawMessage `json:"args"`
	Attempt int               `json:"attempt"`
}

// post sends a request and decodes the answer.
func (c jobClient) post(ctx context.Context, path string, body []byte, status int, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
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

// fetch asks for jobs by the body of a fetch.
func (c jobClient) fetch(ctx context.Context, want []byte) ([]fetchedJob, error) {
	var fetched struct {
		Jobs []fetchedJob `json:"jobs"`
	}
	err := c.post(ctx, "/workers/fetch", want, http.StatusOK, &fetched)
	return fetched.Jobs, err
}

// ack says that a worker has done a job.
func (c jobClient) ack(ctx context.Context, id string, worker int) error {
	var answer json.RawMessage
	return c.post(ctx, "/workers/ack", fmt.Appendf(nil, `{"job_id":%q,"worker_id":"w%d"}`, id, worker), http.StatusOK, &answer)
}
