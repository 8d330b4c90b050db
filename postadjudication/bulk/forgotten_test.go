package bulk_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// rowsWithAPlanMeanwhile makes a plan before the items of another one are read.
type rowsWithAPlanMeanwhile struct {
	audit.RowReader
	plan func()
}

func (r rowsWithAPlanMeanwhile) PlanItems(ctx context.Context, id uuid.UUID, visit func(audit.PlanItem)) error {
	r.plan()
	return r.RowReader.PlanItems(ctx, id, visit)
}

// An audit during which a plan that nobody started is forgotten finds nothing wrong.
func TestAPlanThatIsForgottenDuringAnAuditIsNoBreak(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Simulated = true
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	r.StopWorkers()
	idle := r.MustPlan(rig.AllLetters(bulk.Hold))
	r.MustAudit()
	ahead.Store(int64(bulk.PlanRetention + time.Minute))
	rows := rowsWithAPlanMeanwhile{r.AuditReader(), func() { r.MustPlan(rig.AllLetters(bulk.Hold)) }}
	a, err := audit.Run(context.Background(), rows, r.AuditQuery())
	if err != nil || !a.OK() {
		t.Errorf("%+v, %v", a, err)
	}
	if n := r.RowsOfPlan(idle.ID); n != 0 {
		t.Error("the plan was not forgotten")
	}
	r.MustAudit()
}
