package postadjudication_test

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/retrypolicy"
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
		"an operator's, too many":  {access.Operator, deadletter.ForkAttempts + 1, true},
		"an operator's, as many":   {access.Operator, deadletter.ForkAttempts, false},
		"an admin's, however many": {access.Admin, deadletter.ForkAttempts + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t).StartWorkers()
			ctx := context.Background()
			_, planner := rig.MustKey(r, "acme", postadjudication.NewKey{Principal: "user:ada", Roles: []access.Role{tc.planner}, Reason: "test"})
			_, approver := rig.MustKey(r, "acme", postadjudication.NewKey{Principal: "user:bob", Roles: []access.Role{access.Approver}, Reason: "test"})
			r.DeadLetters(0, 2, rig.Refuses)
			q := rig.AllLetters(bulk.Fork)
			more := retrypolicy.Policy{}.Normalize()
			more.MaxRetryAttempts = tc.attempts
			q.Policy = &more
			plan, err := r.As("acme", "user:ada").Bulk.Plan(postadjudication.WithCaller(ctx, postadjudication.Caller{Key: planner.Prefix}), q)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.As("acme", "user:bob").Bulk.Run(postadjudication.WithCaller(ctx, postadjudication.Caller{Key: approver.Prefix}), plan.ID, plan.Hash); err != nil {
				t.Fatal(err)
			}
			b := r.WaitPlan(plan.ID)
			if tc.fails && (b.Progress.Failed != 2 || b.Progress.Done != 0) || !tc.fails && b.Progress.Done != 2 {
				t.Errorf("%+v", b.Progress)
			}
			for _, i := range r.BulkItems(plan.ID, string(bulk.OutcomeFailed)) {
				if !strings.Contains(i.Error, "max_retry_attempts must be at most 10") || !i.NewRun.IsZero() {
					t.Errorf("%+v", i)
				}
			}
			r.WaitNoneLive()
			r.MustAudit()
		})
	}
}
