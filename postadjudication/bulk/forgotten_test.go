package bulk_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
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

// A plan that is being made is taken for an abandoned one by a process whose clock is far ahead. It is not stored
// without its items: who asked for it is told to try again.
func TestAPlanThatIsTakenForAbandonedIsNotStoredWithoutItsItems(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	r.StopWorkers()
	ahead, clock := r.WithClock()
	clock.Set(bulk.PlanRetention + time.Hour)
	unlock := testkit.LockTables(t, r.DB, `recourse.bulks IN SHARE MODE`) // no plan is stored
	plans := func(by *rig.Rig) chan error {
		made := make(chan error, 1)
		go func() {
			_, err := by.As("acme", "user:ada").Bulk.Plan(context.Background(), rig.AllLetters(bulk.Hold))
			made <- err
		}()
		return made
	}
	counts := func() (ids string) {
		if err := r.DB.QueryRow(`SELECT coalesce(string_agg(DISTINCT bulk_id::text, ' '), '') FROM recourse.bulk_counts`).Scan(&ids); err != nil {
			t.Error(err)
		}
		return ids
	}
	first := plans(r)
	r.Wait("the items of the first plan are stored", func() bool { return counts() != "" })
	its := counts()
	second := plans(ahead)
	r.Wait("they are deleted", func() bool { now := counts(); return now != "" && !strings.Contains(now, its) })
	unlock()
	if err := <-first; !errors.Is(err, background.ErrBusy) {
		t.Errorf("the first plan: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second plan: %v", err)
	}
	r.MustAudit()
}
