package ojs

import (
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Both keys of a principal are made before any process names the payment queue, as on a new installation. It hands an order
// over, and is refused when it fetches it, until one of the keys is revoked.
func TestOnePrincipalDoesNotSubmitAndPayByKeysOfBefore(t *testing.T) {
	t.Parallel()
	var submit, work string
	var submitter postadjudication.AccessKey
	f := newFixture(t, func(c *postadjudication.Config) {
		before := *c
		before.PaymentQueues = nil
		s, err := postadjudication.Open(t.Context(), before)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		keys := s.As("acme", "test").Keys
		if work, _, err = keys.Create(t.Context(), postadjudication.NewKey{Principal: "service:mallory", Roles: []access.Role{access.Worker}, Queues: []string{"*"}, Reason: "jobs"}); err != nil {
			t.Fatal(err)
		}
		if submit, submitter, err = keys.Create(t.Context(), postadjudication.NewKey{Principal: "service:Mallory", Roles: []access.Role{access.Submitter}, Reason: "jobs"}); err != nil {
			t.Fatal(err)
		}
	})
	if status, out := f.answerTo(submit, "POST", "/ojs/v1/jobs", adjudication(1, ``)); status != http.StatusCreated {
		t.Fatalf("%d %v", status, out)
	}
	const fetch = `{"queues":["payouts"],"worker_id":"w1"}`
	if status, out := f.answerTo(work, "POST", "/ojs/v1/workers/fetch", fetch); status != http.StatusForbidden || at(out, "error", "code") != "x_duties_mixed" {
		t.Errorf("fetched by who submitted it: %d %v", status, out)
	}
	if status, out := f.answerTo(work, "POST", "/ojs/v1/workers/fetch", `{"queues":["mail"],"worker_id":"w1"}`); status != http.StatusOK {
		t.Errorf("jobs are no payments: %d %v", status, out)
	}
	if _, err := f.service.As("acme", "test").Keys.Revoke(t.Context(), submitter.Prefix, "two duties"); err != nil {
		t.Fatal(err)
	}
	if status, out := f.answerTo(work, "POST", "/ojs/v1/workers/fetch", fetch); status != http.StatusOK || at(out, "jobs", 0, "id") == nil {
		t.Errorf("after the other key was revoked: %d %v", status, out)
	}
}
