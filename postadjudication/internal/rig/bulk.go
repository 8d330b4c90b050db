package rig

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
)

// MustPlan plans as user:ada.
func (r *Rig) MustPlan(q bulk.Request) bulk.Plan {
	r.T.Helper()
	b, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), q)
	if err != nil {
		r.T.Fatal(err)
	}
	return b
}

// RunPlan starts a plan under another name and waits for its end.
func (r *Rig) RunPlan(b bulk.Plan) bulk.Plan {
	r.T.Helper()
	if _, err := r.As(b.Tenant, "user:bob").Bulk.Run(context.Background(), b.ID, b.Hash); err != nil {
		r.T.Fatal(err)
	}
	return r.WaitPlan(b.ID)
}

// WaitPlan waits until a plan is done, checks its counts against its items, and returns it.
func (r *Rig) WaitPlan(id uuid.UUID) bulk.Plan {
	r.T.Helper()
	r.WaitPlanned("the plan is done", id, func(b bulk.Plan) bool { return b.State == bulk.Done })
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
func (r *Rig) BulkItems(id uuid.UUID, outcome string) (all []bulk.Item) {
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

// AllLetters asks for a plan of all letters.
func AllLetters(a bulk.Action) bulk.Request {
	return bulk.Request{All: true, Action: a, Reason: "the escrow service was mended"}
}

// LettersWhere asks for a plan of the letters that meet a condition.
func LettersWhere(a bulk.Action, condition string) bulk.Request {
	return bulk.Request{Where: condition, Action: a, Reason: "the escrow service was mended"}
}

// FreeRequest asks for a plan that frees the reservations of transactions.
func FreeRequest(transactions string) bulk.FreeRequest {
	return bulk.FreeRequest{Filter: casestatus.Filter{Transaction: transactions}, Reason: "both sides withdrew", Reference: "mail 3"}
}

// MustPlanFree plans as user:ada that reservations are freed.
func MustPlanFree(r *Rig, q bulk.FreeRequest) bulk.Plan {
	r.T.Helper()
	b, err := r.As("acme", "user:ada").Bulk.PlanFree(context.Background(), q)
	if err != nil {
		r.T.Fatal(err)
	}
	return b
}

// OnePerson lets two people lower how many people the money of acme requires to one.
func (r *Rig) OnePerson(reason string) {
	r.T.Helper()
	_, err := r.As("acme", "user:root").People.Set(context.Background(), postadjudication.PeopleChange{People: 1, Reason: reason})
	plan := PlanForSecondPerson(r, err)
	if b, err := r.As("acme", "user:bob").Bulk.Run(context.Background(), plan.ID, plan.Hash); err != nil || b.State != bulk.Done {
		r.T.Fatalf("%+v, %v", b, err)
	}
}

// PlanForSecondPerson returns the plan of an error that asks for a second person.
func PlanForSecondPerson(r *Rig, err error) bulk.Plan {
	r.T.Helper()
	var second *bulk.SecondPersonError
	if !errors.As(err, &second) || second.Code() != "second_person_required" || second.Plan.State != bulk.Planned || second.Plan.People != 2 || second.Plan.Hash == "" {
		r.T.Fatalf("no second person is asked for: %v", err)
	}
	return second.Plan
}
