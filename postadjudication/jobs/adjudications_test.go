package jobs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

const payouts = "payouts"

// order is what a worker gets of an adjudication.
type order struct {
	jobs.Fetched
	Args []json.RawMessage `json:"args"`
	Meta struct {
		OperationKey  string    `json:"recourse.operation_key"`
		RequestSHA256 string    `json:"recourse.request_sha256"`
		RunID         string    `json:"recourse.run_id"`
		Attempt       int       `json:"recourse.attempt"`
		Generation    int       `json:"recourse.generation"`
		NotAfter      time.Time `json:"recourse.not_after"`
	} `json:"meta"`
}

// submitRemote submits an adjudication for remote workers.
func (f *fixture) submitRemote(n int, change ...func(*postadjudication.Adjudication)) (postadjudication.Submitted, jobs.Status) {
	f.t.Helper()
	a := rig.Release(n)
	a.Target = escrow.RemotePrefix + payouts
	for _, c := range change {
		c(&a)
	}
	s := f.MustSubmit(a)
	return s, f.mustFind(s.Run.String())
}

// mustFetchOrder fetches an adjudication as a worker.
func (f *fixture) mustFetchOrder(worker string, change ...func(*jobs.Fetch)) order {
	f.t.Helper()
	q := jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: worker}
	for _, c := range change {
		c(&q)
	}
	got, err := f.Fetch(context.Background(), q)
	if err != nil || len(got) != 1 {
		f.t.Fatalf("%d adjudications, %v", len(got), err)
	}
	o := order{Fetched: got[0]}
	if err := json.Unmarshal(got[0].Payload, &o); err != nil {
		f.t.Fatal(err)
	}
	return o
}

func shortLease(q *jobs.Fetch) { q.Visibility = 200 * time.Millisecond }

// fetchNoOrder fails the test if an adjudication can be fetched.
func (f *fixture) fetchNoOrder() {
	f.t.Helper()
	if got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{payouts}, Count: 10, Worker: "w9"}); err != nil || len(got) != 0 {
		f.t.Fatalf("%+v, %v", got, err)
	}
}

// pay has the payment service execute an order, and returns what the worker says of it.
func (f *fixture) pay(o order) json.RawMessage {
	f.t.Helper()
	key, err := hex.DecodeString(o.Meta.OperationKey)
	if err != nil {
		f.t.Fatal(err)
	}
	var request struct {
		Outcome settlement.Outcome `json:"outcome"`
		Amount  settlement.Money   `json:"amount"`
	}
	if err := json.Unmarshal(o.Args[0], &request); err != nil {
		f.t.Fatal(err)
	}
	paid := f.Escrow.Execute(context.Background(), escrow.Call{OperationKey: escrow.OperationKey(key), Request: o.Args[0], Tenant: "acme", Outcome: request.Outcome, Amount: request.Amount, Run: o.Run, Attempt: o.Meta.Attempt})
	return payment(paid.Moved, request.Amount.Currency)
}

func payment(minor int64, currency string) json.RawMessage {
	return fmt.Appendf(nil, `{"moved":{"minor":%d,"currency":%q},"reference":"pay-1"}`, minor, currency)
}

var (
	notExecuted = background.Failure{Type: "bank.closed", Code: "x_not_executed_yet", Message: "the bank is closed"}
	unclear     = background.Failure{Type: "bank.timeout", Code: "handler_error", Message: "no answer of the bank"}
)

func (f *fixture) wantPaid(o postadjudication.Submitted, minor int64) {
	f.t.Helper()
	c, err := f.CaseByID(context.Background(), "acme", o.Case)
	if err != nil || c.Moved != minor {
		f.t.Errorf("%d was paid, want %d: %v", c.Moved, minor, err)
	}
}

// An adjudication for a queue is never delivered. Its worker gets the order as it is stored, pays, and
// says what it paid.
func TestARemoteWorkerExecutesAnAdjudication(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	if s.Reply != postadjudication.Created || job.Type != jobs.AdjudicationType || job.Queue != payouts || job.ID != s.Run.String() || job.State != background.Pending || job.CreatedAt.IsZero() {
		t.Fatalf("%+v", job)
	}
	o := f.mustFetchOrder("w1")
	digest := sha256.Sum256(o.Args[0])
	if o.Meta.RequestSHA256 != hex.EncodeToString(digest[:]) || o.Meta.RunID != job.ID || o.Meta.Attempt != 1 || o.Meta.Generation != 1 || len(o.Args) != 1 {
		t.Errorf("%+v", o.Meta)
	}
	if left := o.Meta.NotAfter.Sub(o.StartedAt); left > o.Visibility || left <= o.Visibility-time.Millisecond {
		t.Errorf("the order may be executed for %s, the lease is %s", left, o.Visibility)
	}
	f.fetchNoOrder()
	done, err := f.Ack(context.Background(), jobs.Answer{ID: job.ID}, f.pay(o))
	if err != nil || done.State != background.Succeeded {
		t.Fatalf("%+v, %v", done, err)
	}
	f.wantPaid(s, 1000)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptSucceeded)
	if again, err := f.Submit(context.Background(), func() postadjudication.Adjudication {
		a := rig.Release(1)
		a.Target = escrow.RemotePrefix + payouts
		return a
	}()); err != nil || again.Reply != postadjudication.AlreadyExecuted {
		t.Errorf("%v, %v", again, err)
	}
	f.MustAudit()
}

// The target is part of the operation key, and an adjudication for a queue that is no payment queue is refused.
func TestAQueueThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, queue := range []string{"", "A", "a b", "a/b", "-a", "a_b", string(make([]byte, 10)), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", mail, "payouts2"} {
		a := rig.Release(1)
		a.Target = escrow.RemotePrefix + queue
		var field *refusal.FieldError
		if _, err := f.Submit(context.Background(), a); !errors.As(err, &field) || field.Field != "target" {
			t.Errorf("%q: %v", queue, err)
		}
	}
	if _, err := postadjudication.Open(context.Background(), postadjudication.Config{DatabaseURL: f.DatabaseURL, Executor: f.Escrow, Targets: []postadjudication.Target{{Name: "queue:a"}}}); err == nil {
		t.Error("a target that begins with queue: could be configured")
	}
	if n := f.CountRows("runs"); n != 0 {
		t.Errorf("%d runs", n)
	}
}

// An ack that does not say what was paid changes nothing: the lease goes on.
func TestAnAckThatDoesNotSayWhatWasPaidIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1")
	for said, field := range map[string]string{
		"":                               "result",
		`null`:                           "result",
		`"paid"`:                         "result",
		`[1000]`:                         "result",
		`{"moved":1000,"reference":"p"}`: "result",
		`{"moved":{"minor":"1000","currency":"EUR"},"reference":"p"}`:                            "result",
		`{"moved":{"minor":1000.5,"currency":"EUR"},"reference":"p"}`:                            "result",
		`{"moved":{"minor":1e400,"currency":"EUR"},"reference":"p"}`:                             "result",
		`{"moved":{"minor":1000},"reference":"p"}`:                                               "result",
		`{"moved":{"minor":1000,"minor":1,"currency":"EUR"},"reference":"p"}`:                    "result",
		`{"moved":{"minor":1000,"currency":"USD"},"reference":"p"}`:                              "result.moved.currency",
		`{"moved":{"minor":1000,"currency":"eur"},"reference":"p"}`:                              "result.moved.currency",
		`{"moved":{"minor":0,"currency":"EUR"},"reference":"p"}`:                                 "result.moved.minor",
		`{"moved":{"minor":-1000,"currency":"EUR"},"reference":"p"}`:                             "result.moved.minor",
		`{"moved":{"minor":9007199254740991,"currency":"EUR"},"reference":"p"}`:                  "result.moved.minor",
		`{"moved":{"minor":1000,"currency":"EUR"}}`:                                              "result.reference",
		`{"moved":{"minor":1000,"currency":"EUR"},"reference":""}`:                               "result.reference",
		`{"moved":{"minor":1000,"currency":"EUR"},"reference":"` + string(payment(1, "")) + `"}`: "result",
	} {
		var wrong *refusal.FieldError
		if _, err := f.Ack(context.Background(), by(job), json.RawMessage(said)); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v, want a problem of %s", said, err, field)
		}
	}
	if got := f.mustFind(job.ID); got.State != background.Running {
		t.Fatalf("%+v", got)
	}
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted)
	if _, err := f.Ack(context.Background(), by(job), f.pay(o)); err != nil {
		t.Fatal(err)
	}
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// Whoever does not hold the lease can't settle it.
func TestAnotherWorkerCannotAnswerForTheHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1")
	for name, a := range map[string]jobs.Answer{"another worker": {ID: job.ID, Worker: "w2"}, "another attempt": {ID: job.ID, Attempt: 2}, "another worker and attempt": {ID: job.ID, Worker: "w2", Attempt: 1}} {
		_, err := f.Ack(context.Background(), a, payment(1000, "EUR"))
		wantConflict(t, err, background.Running)
		_, err = f.Nack(context.Background(), a, notExecuted, true, background.EndByPolicy)
		wantConflict(t, err, background.Running)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	if _, err := f.As("umbrella", "service:shop").Jobs.Ack(context.Background(), by(job), payment(1000, "EUR")); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	f.wantPaid(s, 0)
	if _, err := f.Ack(context.Background(), by(job), f.pay(o)); err != nil {
		t.Fatal(err)
	}
	_, err := f.Ack(context.Background(), by(job), payment(1000, "EUR"))
	wantConflict(t, err, background.Succeeded)
	f.wantPaid(s, 1000)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptSucceeded)
	f.MustAudit()
}

// Only a worker that says so has not executed its order.
func TestANackIsUnknownUnlessItSaysNotExecuted(t *testing.T) {
	t.Parallel()
	byDetails := unclear
	byDetails.Details = `{"outcome_class":"not_executed"}`
	otherWord := unclear
	otherWord.Details = `{"outcome_class":"NOT_EXECUTED","x":"not_executed"}`
	f := newFixture(t, func(c *postadjudication.Config) {
		for n := range 20 {
			c.PaymentQueues = append(c.PaymentQueues, fmt.Sprintf("q%d", n+1))
		}
	})
	f.StartWorkers()
	n := 0
	for name, c := range map[string]struct {
		why      background.Failure
		requeue  bool
		retry    bool
		order    background.EndOrder
		executed bool // may be
		state    background.State
		reason   string
	}{
		"not executed, by code":           {notExecuted, false, true, background.EndByPolicy, false, background.Scheduled, ""},
		"not executed, by details":        {byDetails, false, true, background.EndByPolicy, false, background.Scheduled, ""},
		"not executed, and final":         {notExecuted, false, false, background.EndByPolicy, false, background.DeadLettered, background.ReasonFinal},
		"not executed, discarded":         {notExecuted, false, true, background.EndDiscarded, false, background.DeadLettered, background.ReasonOrdered},
		"not executed, dead by order":     {notExecuted, false, true, background.EndDeadLettered, false, background.DeadLettered, background.ReasonOrdered},
		"handed back, not executed":       {notExecuted, true, true, background.EndByPolicy, false, background.Scheduled, ""},
		"no word of the outcome":          {unclear, false, true, background.EndByPolicy, true, background.DeadLettered, background.ReasonOutcomeUnknown},
		"no word of the outcome, final":   {unclear, false, false, background.EndByPolicy, true, background.DeadLettered, background.ReasonFinal},
		"another word":                    {otherWord, false, true, background.EndByPolicy, true, background.DeadLettered, background.ReasonOutcomeUnknown},
		"handed back without a word":      {unclear, true, true, background.EndByPolicy, true, background.DeadLettered, background.ReasonOutcomeUnknown},
		"no word of the outcome, discard": {unclear, false, true, background.EndDiscarded, true, background.DeadLettered, background.ReasonOrdered},
	} {
		n++
		queue := fmt.Sprintf("q%d", n)
		s, job := f.submitRemote(n, func(a *postadjudication.Adjudication) { a.Target = escrow.RemotePrefix + queue })
		f.mustFetchOrder("w1", func(q *jobs.Fetch) { q.Queues = []string{queue} })
		var err error
		if c.requeue {
			_, err = f.HandBack(context.Background(), by(job), c.why)
		} else {
			_, err = f.Nack(context.Background(), by(job), c.why, c.retry, c.order)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f.WaitState(s.Run, c.state)
		got, st := f.mustFind(job.ID), f.StatusOf(s.Run)
		if got.OutcomeUnknown != c.executed || st.ReasonCode != c.reason && c.reason != "" {
			t.Errorf("%s: unknown %v, reason %q: %+v", name, got.OutcomeUnknown, st.ReasonCode, got)
		}
	}
	f.MustAudit()
}

// A list of dead-lettered adjudications says of each what a look at it alone says: of a later generation, what
// happened to that one.
func TestAListOfAdjudicationsHasNoHistoryOfOtherGenerations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	die := func(generation int) jobs.Status {
		s, job := f.submitRemote(1, func(a *postadjudication.Adjudication) {
			a.Generation, a.AdjudicationID = generation, fmt.Sprint("adj_generation_", generation)
		})
		f.mustFetchOrder("w1")
		if _, err := f.Nack(context.Background(), by(job), notExecuted, false, background.EndByPolicy); err != nil {
			t.Fatal(err)
		}
		f.WaitState(s.Run, background.DeadLettered)
		return job
	}
	die(1)
	second := die(2)
	check := func(name string, failures int) {
		t.Helper()
		page, _ := f.mustList(jobs.Query{Filter: jobs.Filter{Type: jobs.AdjudicationType}, Limit: 10})
		if len(page.Jobs) != 1 || page.Total != 1 || len(page.Jobs[0].Failures) != failures || page.Jobs[0].Failures[failures-1].Cycle != failures {
			t.Errorf("%s: %+v", name, page)
		}
	}
	check("the second generation", 1)
	forked := f.MustFork(postadjudication.Submitted{Run: second.Run, Case: second.Case})
	f.mustFetchOrder("w1")
	if _, err := f.Nack(context.Background(), jobs.Answer{ID: forked.Run.String()}, notExecuted, false, background.EndByPolicy); err != nil {
		t.Fatal(err)
	}
	f.WaitState(forked.Run, background.DeadLettered)
	check("its fork", 2)
}
