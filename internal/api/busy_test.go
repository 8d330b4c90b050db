package api_test

import (
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// What another transaction holds for too long is a 503 that says when to ask again, and
// nothing is done.
func TestARowThatIsLockedElsewhereIsToBeAskedForAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ask := map[string]func() answer{
		"policy": func() answer {
			return r.ask(r.key("acme", access.Admin), http.MethodPost, "/api/v1/policies/settlement", `{"policy":{"max_retry_attempts":5},"reason":"x"}`)
		},
		"brake": func() answer {
			return r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/brakes/pull", `{"reason":"x"}`)
		},
	}
	for name, do := range ask {
		if a := do(); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, a.status, a.text)
		}
	}
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`LOCK TABLE recourse.policies, recourse.brakes IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	for name, do := range ask {
		a := do()
		if a.refused(http.StatusServiceUnavailable, "busy", ""); a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for name, do := range ask {
		if a := do(); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
}
