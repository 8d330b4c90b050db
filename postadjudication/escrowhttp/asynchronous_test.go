package escrowhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// stateBody is a body that names the operation key of a call and states how it is.
func stateBody(c escrow.Call, status string) string {
	return fmt.Sprintf(`{"operation_key":%q,"status":%q}`, c.OperationKey, status)
}

// What an asynchronous service answers to a call and to a lookup. Accepted is neither executed nor not executed; and of a
// service that was not called asynchronous it means what it meant before.
func TestWhatAnAsynchronousServiceAnswers(t *testing.T) {
	t.Parallel()
	c := newCall()
	other := newCall()
	other.OperationKey[0]++
	type meaning struct {
		class    escrow.Class
		accepted bool
	}
	yes, no := meaning{escrow.Unknown, true}, meaning{escrow.Unknown, false}
	for name, tc := range map[string]struct {
		status       int
		body         string
		call, lookup meaning
	}{
		"202 without a body":           {202, "", yes, yes},
		"202 accepted":                 {202, stateBody(c, "accepted"), yes, yes},
		"202 pending":                  {202, stateBody(c, "pending"), yes, yes},
		"202 processing":               {202, stateBody(c, "processing"), yes, yes},
		"200 pending":                  {200, stateBody(c, "pending"), yes, yes},
		"202 that says executed":       {202, proofBody(c, "executed", c.Amount.Minor, c.Amount.Currency), no, no},
		"202 that names another key":   {202, stateBody(other, "accepted"), no, no},
		"202 with another state":       {202, stateBody(c, "failed"), no, no},
		"202 in HTML":                  {202, "<html>queued</html>", no, no},
		"200 pending, but moved":       {200, proofBody(c, "pending", c.Amount.Minor, c.Amount.Currency), no, no},
		"200 pending of another key":   {200, stateBody(other, "pending"), no, no},
		"200 executed":                 {200, proofBody(c, "executed", c.Amount.Minor, c.Amount.Currency), meaning{escrow.Executed, false}, meaning{escrow.Executed, false}},
		"404 pending":                  {404, stateBody(c, "pending"), meaning{escrow.NotExecuted, false}, no},
		"404 not executed of a lookup": {404, stateBody(c, "not_executed"), meaning{escrow.NotExecuted, false}, meaning{escrow.NotExecuted, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveAnswer(t, tc.status, map[string]string{"Retry-After": "7"}, tc.body)
			e := newExecutor(t, escrowhttp.Config{BaseURL: url, KeyLifetime: 2 * time.Hour, Asynchronous: time.Hour})
			synchronous := newExecutor(t, escrowhttp.Config{BaseURL: url, KeyLifetime: 2 * time.Hour})
			for what, answer := range map[string]struct {
				want                  meaning
				asynchronous, without escrow.Answer
			}{
				"call":   {tc.call, e.Execute(withLimit(t), c), synchronous.Execute(withLimit(t), c)},
				"lookup": {tc.lookup, e.Lookup(withLimit(t), c), synchronous.Lookup(withLimit(t), c)},
			} {
				if got := answer.asynchronous; got.Class != answer.want.class || got.Accepted != answer.want.accepted {
					t.Errorf("%s: %+v", what, got)
				} else if got.Accepted && (!got.Retry || got.RetryAfter != 7*time.Second || got.Type != escrowhttp.TypeAccepted) {
					t.Errorf("%s: %+v", what, got)
				}
				if got := answer.without; got.Class != answer.want.class || got.Accepted {
					t.Errorf("%s, of a service that ends each call with its answer: %+v", what, got)
				}
			}
		})
	}
}

// A server that streams states no length of the body that it does not send.
func TestA202WithoutABodyAndWithoutItsLengthIsAccepted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		w.(http.Flusher).Flush()
	}))
	t.Cleanup(server.Close)
	e := newExecutor(t, escrowhttp.Config{BaseURL: server.URL, KeyLifetime: escrow.Forever, Asynchronous: time.Hour})
	if a := e.Execute(withLimit(t), newCall()); !a.Accepted {
		t.Errorf("%+v", a)
	}
}

func TestTheSpanOfAcceptedCallsIsChecked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key, lookup, span time.Duration
		ok                bool
	}{
		{time.Hour, 0, 59 * time.Minute, true}, {time.Hour, 0, time.Hour, false}, {time.Hour, 2 * time.Hour, time.Hour, true},
		{0, 0, time.Second, false}, {escrow.Forever, 0, 24 * time.Hour, true}, {time.Hour, 0, -1, false}, {0, 0, 0, true},
	} {
		e, err := escrowhttp.New(escrowhttp.Config{BaseURL: "http://127.0.0.1", KeyLifetime: tc.key, LookupLifetime: tc.lookup, Asynchronous: tc.span})
		if (err == nil) != tc.ok || err == nil && e.AcceptedFor() != tc.span {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
