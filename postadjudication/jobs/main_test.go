package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const mail = "mail"

// fixture is a service with jobs on real servers.
type fixture struct {
	*rig.Rig
	jobs.Jobs
	t *testing.T
}

func withJobs(c *postadjudication.Config) { c.Jobs, c.PaymentQueues = true, []string{payouts} }

func newFixture(t *testing.T, change ...func(*postadjudication.Config)) *fixture {
	t.Helper()
	r := rig.New(t, append([]func(*postadjudication.Config){withJobs}, change...)...)
	return &fixture{r, r.As("acme", "service:shop").Jobs, t}
}

// other returns the jobs as another process sees them.
func (f *fixture) other(change ...func(*postadjudication.Config)) *fixture {
	r := f.OtherProcess(append([]func(*postadjudication.Config){withJobs}, change...)...)
	return &fixture{r, r.As("acme", "service:shop").Jobs, f.t}
}

// newJob returns a job with an id of its own.
func newJob(change ...func(*jobs.Job)) jobs.Job {
	j := jobs.Job{ID: uuid.Must(uuid.NewV7()).String(), Type: "mail.send", Queue: mail, Payload: json.RawMessage(`{"args":["a"],"n":1e400}`)}
	for _, c := range change {
		c(&j)
	}
	return j
}

func (f *fixture) mustEnqueue(change ...func(*jobs.Job)) jobs.Status {
	f.t.Helper()
	s, err := f.Enqueue(context.Background(), newJob(change...))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// mustFetch fetches one job, which must be the one given.
func (f *fixture) mustFetch(of jobs.Status) jobs.Fetched {
	f.t.Helper()
	got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{of.Queue}, Count: 1, Worker: "w1"})
	if err != nil || len(got) != 1 || got[0].ID != of.ID {
		f.t.Fatalf("%+v, %v", got, err)
	}
	return got[0]
}

// fetchNothing fails the test if a job can be fetched.
func (f *fixture) fetchNothing() {
	f.t.Helper()
	got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 10, Worker: "w1"})
	if err != nil || len(got) != 0 {
		f.t.Fatalf("%+v, %v", got, err)
	}
}

func (f *fixture) mustFind(id string) jobs.Status {
	f.t.Helper()
	s, err := f.Find(context.Background(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func by(s jobs.Status) jobs.Answer { return jobs.Answer{ID: s.ID, Worker: "w1"} }

var refused = background.Failure{Type: "SmtpError", Code: "handler_error", Message: "550 no such mailbox", Details: `{"host":"mx1"}`}

// subtypes returns the receipts of a job, in order.
func (f *fixture) subtypes(s jobs.Status) (out []receipts.Subtype) {
	f.t.Helper()
	rs, err := f.Receipts(context.Background(), "acme", s.Case, 0, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rs {
		out = append(out, r.Subtype)
	}
	return out
}

func (f *fixture) wantSubtypes(s jobs.Status, want ...receipts.Subtype) {
	f.t.Helper()
	if got := f.subtypes(s); !slices.Equal(got, want) {
		f.t.Errorf("receipts %v, want %v", got, want)
	}
}

// wantConflict fails the test unless an error says that the job is in another state.
func wantConflict(t *testing.T, err error, state background.State) {
	t.Helper()
	var conflict *jobs.ConflictError
	if !errors.As(err, &conflict) || conflict.Status.State != state {
		t.Errorf("error %v, want a conflict with %s", err, state)
	}
}

func attempts(n int, end retrypolicy.Exhaustion) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Policy = retrypolicy.Policy{MaxRetryAttempts: n, BaseDelay: time.Millisecond, OnExhaustion: end}
	}
}
