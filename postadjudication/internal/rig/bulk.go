package rig

import (
	"context"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication"
)

// MustPlan plans as user:ada.
func (r *Rig) MustPlan(q postadjudication.BulkRequest) postadjudication.Bulk {
	r.T.Helper()
	b, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), q)
	if err != nil {
		r.T.Fatal(err)
	}
	return b
}

// RunPlan starts a plan under another name and waits for its end.
func (r *Rig) RunPlan(b postadjudication.Bulk) postadjudication.Bulk {
	r.T.Helper()
	if _, err := r.As(b.Tenant, "user:bob").Bulk.Run(context.Background(), b.ID, b.Hash); err != nil {
		r.T.Fatal(err)
	}
	return r.WaitPlan(b.ID)
}

// WaitPlan waits until a plan is done, checks its counts against its items, and returns it.
func (r *Rig) WaitPlan(id uuid.UUID) postadjudication.Bulk {
	r.T.Helper()
	r.WaitQuery("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, id)
	b, err := r.As("acme", "").Bulk.Get(context.Background(), id)
	if err != nil {
		r.T.Fatal(err)
	}
	p := b.Progress
	if p.Pending+p.Done+p.Refused+p.PlanStale+p.Failed != b.Items {
		r.T.Errorf("the counts %+v do not add up to %d", p, b.Items)
	}
	for word, want := range map[string]int64{"pending": p.Pending, "done": p.Done, "refused": p.Refused, "plan_stale": p.PlanStale, "failed": p.Failed} {
		if got := len(r.BulkItems(id, word)); int64(got) != want {
			r.T.Errorf("%d items are %s, %d are counted", got, word, want)
		}
	}
	return b
}

// BulkItems reads the items in small pages.
func (r *Rig) BulkItems(id uuid.UUID, outcome string) (all []postadjudication.BulkItem) {
	r.T.Helper()
	for cursor := ""; ; {
		page, err := r.As("acme", "").Bulk.Items(context.Background(), id, outcome, cursor, 7)
		if err != nil {
			r.T.Fatal(err)
		}
		all = append(all, page.Items...)
		if cursor = page.Next; !page.More {
			return all
		}
	}
}
