package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// People is the number of people that it takes, for a tenant, to record an executed finding of a
// settlement, to free a reservation, and to start a bulk plan that forks or purges settlements.
type People struct {
	Tenant string     `json:"tenant"`
	People int        `json:"people"` // 2 unless set to 1
	Actor  string     `json:"actor,omitempty"`
	Reason string     `json:"reason,omitempty"`
	At     *time.Time `json:"at,omitempty"` // when it was set; nil: never
}

// PeopleChange sets the number of people required.
type PeopleChange struct {
	People int    // 1 or 2
	Reason string // required
	// Request identifies the request that asks for the change, so that it makes one plan only; empty: none.
	Request string
}

// PeopleVersion is one change of the number, as its receipt states it.
type PeopleVersion struct {
	People
	PlannedBy    string `json:"planned_by,omitempty"`    // who planned what the actor ran
	SelfDeclared bool   `json:"self_declared,omitempty"` // the name of one of them was not verified
	Receipt      string `json:"receipt_id"`
}

func peopleOf(p journal.People) People {
	return People{Tenant: p.Tenant, People: p.People, Actor: p.Actor, Reason: p.Reason, At: casework.TimeOrNil(p.At)}
}

// Get returns the number of people that a tenant's money requires.
func (t TenantPeople) Get(ctx context.Context) (People, error) {
	if t.tenant == "" {
		return People{}, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	p, err := t.s.journal.People.Get(ctx, t.tenant)
	return peopleOf(p), err
}

// OnePersonTenants returns the tenants whose money requires one person.
func (h *Health) OnePersonTenants(ctx context.Context) ([]People, error) {
	found, err := h.s.journal.People.OnePersonTenants(ctx)
	out := make([]People, len(found))
	for i := range found {
		out[i] = peopleOf(found[i])
	}
	return out, err
}

// Set sets the number of people that a tenant's money requires, with a receipt in one
// commit. It writes nothing if the number is already set. It lowers no number: it stores a plan, which another person must
// start, and returns a *bulk.SecondPersonError. Errors: a *FieldError for bad input.
func (t TenantPeople) Set(ctx context.Context, q PeopleChange) (People, error) {
	errs := []error{validate.Change(t.tenant, t.actor, q.Reason)}
	if q.People != 1 && q.People != journal.DefaultPeople {
		errs = append(errs, &refusal.FieldError{Field: "people", Problem: "must be 1 or 2"})
	}
	if err := errors.Join(errs...); err != nil {
		return People{}, err
	}
	required, err := t.s.applier.RequiredPeople(ctx, t.tenant)
	if err != nil {
		return People{}, err
	}
	if q.People < required {
		return People{}, t.s.plans.ProposePeople(ctx, journal.People{Tenant: t.tenant, People: q.People, Actor: t.actor, Reason: q.Reason}, q.Request)
	}
	if q.People == 1 && !casework.CallerOf(ctx).NoKeys { // in force; somebody may raise it meanwhile
		return t.Get(ctx)
	}
	at, reason := t.s.now(), validate.Clean(q.Reason, 1024)
	now, err := t.s.journal.People.Set(ctx, journal.People{Tenant: t.tenant, People: q.People, Actor: t.actor, Reason: reason, At: at}, time.Time{},
		receipts.Draft{Actor: t.actor, At: at, Payload: receipts.Payload{People: q.People, Reason: reason}})
	return peopleOf(now), err
}

// History returns at most limit changes in order, from their receipts, beginning after a
// sequence number.
func (t TenantPeople) History(ctx context.Context, after int64, limit int) ([]PeopleVersion, error) {
	switch {
	case t.tenant == "":
		return nil, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	case limit < 1:
		return nil, &refusal.FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	caseID, found, err := t.s.journal.Operations.Log(ctx, t.tenant, journal.PeopleLog)
	if err != nil || !found {
		return nil, err
	}
	trail, err := t.s.journal.Receipts.Trail(ctx, t.tenant, caseID, journal.TrailCursor{Case: caseID, Seq: after}, limit)
	if err != nil {
		return nil, err
	}
	out := make([]PeopleVersion, len(trail))
	for i, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		out[i] = PeopleVersion{People: People{Tenant: t.tenant, People: p.People, Actor: r.Actor, Reason: p.Reason, At: casework.TimeOrNil(r.At)}, PlannedBy: p.PlannedBy, SelfDeclared: p.SelfDeclared, Receipt: r.ID()}
	}
	return out, nil
}
