package postadjudication_test

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// The audit detects a policy and a handler link that were changed directly in the database.
func TestAnAuditFindsPoliciesAndHandlersThatWereChangedByHand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for what, c := range map[string]struct{ spoil, invariant, word string }{
		"a policy":          {`UPDATE recourse.policies SET policy = replace(policy, ':5', ':50')`, audit.InvariantFold, "the receipts say"},
		"a version":         {`UPDATE recourse.policies SET version = 2`, audit.InvariantFold, "is at version 2, its last receipt is 1"},
		"a handler's key":   {`UPDATE recourse.runs SET retry_key = 'dlq:' || gen_random_uuid() WHERE family = 'dlq'`, audit.InvariantLetters, "do not refer"},
		"a link":            {`UPDATE recourse.handlers SET run = gen_random_uuid()`, audit.InvariantLetters, "do not refer"},
		"nothing, and then": {`SELECT 1`, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, func(c *postadjudication.Config) {
				c.OnAnyDeath = postadjudication.LetterHandler{Handle: (&handlerRecorder{}).handle}
			}).StartWorkers()
			if _, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(5)); err != nil {
				t.Fatal(err)
			}
			r.DeadLetter(1, rig.Refuses)
			execAsOwner(r, c.spoil)
			a, err := r.Audit(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if c.invariant == "" {
				if !a.OK() {
					t.Errorf("%v", a.Broken)
				}
				return
			}
			if v := a.Verdict(c.invariant); !strings.Contains(v, c.word) {
				t.Errorf("%q: %s", c.invariant, v)
			}
		})
	}
}
