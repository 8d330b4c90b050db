package postadjudication

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
)

// A plan gives forks no more attempts than its planner and starter may, whatever the version
// and the policy were at planning.
func TestAPlanGivesForksNoMoreAttemptsThanItsPeopleMay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		planner  access.Role
		attempts int
		fails    bool
	}{
		"an operator's, too many":  {access.Operator, ForkAttempts + 1, true},
		"an operator's, as many":   {access.Operator, ForkAttempts, false},
		"an admin's, however many": {access.Admin, ForkAttempts + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).startWorkers()
			ctx := context.Background()
			_, planner := r.mustKey("acme", NewKey{Principal: "user:ada", Roles: []access.Role{tc.planner}, Reason: "test"})
			_, approver := r.mustKey("acme", NewKey{Principal: "user:bob", Roles: []access.Role{access.Approver}, Reason: "test"})
			r.deadLetters(0, 2, func(escrow.Call) escrow.Answer { return refused() })
			q := allLetters(BulkFork)
			more := r.policies.base
			more.MaxRetryAttempts = tc.attempts
			q.Policy = &more
			plan, err := r.As("acme", "user:ada").Bulk.Plan(casework.WithCaller(ctx, casework.Caller{Key: planner.Prefix}), q)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.As("acme", "user:bob").Bulk.Run(casework.WithCaller(ctx, casework.Caller{Key: approver.Prefix}), plan.ID, plan.Hash); err != nil {
				t.Fatal(err)
			}
			b := r.untilPlanDone(plan.ID)
			if tc.fails && (b.Progress.Failed != 2 || b.Progress.Done != 0) || !tc.fails && b.Progress.Done != 2 {
				t.Errorf("%+v", b.Progress)
			}
			for _, i := range r.bulkItems(plan.ID, string(OutcomeFailed)) {
				if !strings.Contains(i.Error, "max_retry_attempts must be at most 10") || !i.NewRun.IsZero() {
					t.Errorf("%+v", i)
				}
			}
			r.untilNoneLive()
			r.mustAudit()
		})
	}
}
