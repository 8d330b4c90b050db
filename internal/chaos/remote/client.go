package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client sends requests to /ojs, or to the ledger.
type client struct {
	url   string
	http  *http.Client
	token string // of a key; empty: none
}

// requestTimeout is how long a request may take. The outcome of one that took longer is unknown.
const requestTimeout = 4 * time.Second

const (
	jobsPath    = "/ojs/v1/jobs"
	workersPath = "/ojs/v1/workers/"
	lettersPath = "/ojs/v1/dead-letter"
	eventsPath  = "/ojs/v1/events"
)

func newClient(url string, timeout time.Duration) client {
	return client{url: url, http: &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second}}}
}

// reply is what was answered, and when. Without an answer its status is 0.
type reply struct {
	status         int
	body           []byte
	sent, received time.Time
}

// unknown reports that a request may have had its effect, or not.
func (r reply) unknown() bool { return r.status == 0 || r.status >= http.StatusInternalServerError }

// ok reports that it had.
func (r reply) ok() bool { return r.status >= 200 && r.status < 300 }

// send sends a request. The body may be nil.
func (c client) send(ctx context.Context, method, path string, body any) reply {
	return c.sendWith(ctx, method, path, body, nil)
}

func (c client) sendWith(ctx context.Context, method, path string, body any, headers map[string]string) (r reply) {
	var text io.Reader
	if body != nil {
		b, asItIs := body.(json.RawMessage)
		if !asItIs {
			var err error
			if b, err = json.Marshal(body); err != nil {
				panic(err) // it is ours
			}
		}
		text = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(ctx, method, c.url+path, text)
	if err != nil {
		panic(err)
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		q.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range headers {
		q.Header.Set(name, value)
	}
	r.sent = time.Now()
	defer func() { r.received = time.Now() }()
	a, err := c.http.Do(q)
	if err != nil {
		return r
	}
	defer a.Body.Close()
	if r.body, err = io.ReadAll(a.Body); err == nil {
		r.status = a.StatusCode
	}
	return r
}

// problem is the body of a refusal.
type problem struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Details struct {
			State    string `json:"current_state"`
			Rule     string `json:"rule"`
			Existing string `json:"existing_job_id"`
		} `json:"details"`
	} `json:"error"`
}

func (r reply) problem() (p problem) {
	_ = json.Unmarshal(r.body, &p) // what is no refusal has none of its members
	return p
}

func (r reply) String() string {
	return fmt.Sprintf("%d %s", r.status, bytes.TrimSpace(r.body))
}

// job is what a worker reads of a job.
type job struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Args       json.RawMessage `json:"args"`
	State      string          `json:"state"`
	Attempt    int             `json:"attempt"`
	MaxAttempt int             `json:"max_attempts"`
	StartedAt  string          `json:"started_at"`
	Visibility int64           `json:"visibility_timeout_ms"`
	Result     struct {
		Key string `json:"key"`
	} `json:"result"`
	CreatedAt   time.Time `json:"created_at"`
	CompletedAt time.Time `json:"completed_at"`
	CancelledAt time.Time `json:"cancelled_at"`
	DiscardedAt time.Time `json:"discarded_at"`
}

func (j job) endedAt() time.Time {
	for _, t := range []time.Time{j.CompletedAt, j.CancelledAt, j.DiscardedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// post adds an entry to the ledger, until it is taken.
func (c client) post(ctx context.Context, e Entry) error {
	r := c.send(ctx, http.MethodPost, "/entries", e)
	if !r.ok() {
		return fmt.Errorf("remote: the ledger did not take an entry: %s", r)
	}
	return nil
}
