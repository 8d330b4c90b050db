package bulk

import (
	"context"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// SecondPersonError means that another person than its author must start a plan. A plan that states
// or frees money, or forks or purges settlements, takes two people: one makes the plan, and another
// one reviews it and starts it.
type SecondPersonError struct {
	Plan    Plan   // waits for the second person
	Because string // why this caller may not start it; empty if the plan was only just made
}

// Code returns the refusal's code for programs.
func (e *SecondPersonError) Code() string { return "second_person_required" }

func (e *SecondPersonError) Error() string {
	text := "bulk: plan " + e.Plan.ID.String() + " must be started by somebody else than " + e.Plan.Actor
	if e.Because != "" {
		text += ": " + e.Because
	}
	return text
}

// secondPersonRequired is a SecondPersonError with the stored plan.
type secondPersonRequired struct {
	plan    plans.Plan
	because string
}

func (e *secondPersonRequired) Error() string { return e.because }

// BreakGlass lets its author start a plan alone.
type BreakGlass struct {
	Reason   string // why no other person could; required
	Incident string // reference of the incident; required
}

func provenanceOf(b plans.Plan) casework.Provenance {
	m := casework.Provenance{PlannedBy: b.Actor, Incident: b.Incident, Declared: b.SelfDeclared}
	if b.People == 1 {
		m.People = 1
	}
	return m
}

// needsTwoPeople reports whether a plan states or frees money, forks settlements or purges them. A plan
// whose action this version does not have may do so.
func needsTwoPeople(b *plans.Plan) bool {
	switch Action(b.Action) {
	case Fork, Purge:
		return b.HasSettlements
	case Reconcile, Mark, Hold, Release:
		return false
	}
	return true
}

// planStarter is the caller who starts a plan.
type planStarter struct {
	casework.Caller
	actor      string
	breakGlass *BreakGlass // nil: not alone
	// Settings of the tenant.
	people int
	keys   []access.Key
}

func (p *Planner) newStarter(ctx context.Context, tenant, actor string, breakGlass *BreakGlass) (by planStarter, err error) {
	by = planStarter{Caller: casework.CallerOf(ctx), actor: actor, breakGlass: breakGlass}
	if by.people, err = p.applier.RequiredPeople(ctx, tenant); err != nil {
		return by, err
	}
	by.keys, err = p.journal.Keys.List(ctx, tenant)
	return by, err
}

// authorize returns why the caller may not start a plan, or records in the plan who started it.
func (by *planStarter) authorize(b *plans.Plan) (because string, err error) {
	b.StartedKey, b.SelfDeclared = by.Key, !by.NoKeys && (b.PlannedKey == "" || by.Key == "")
	if !needsTwoPeople(b) {
		if by.breakGlass != nil {
			return "", &refusal.FieldError{Field: "break_glass", Problem: "must not be given: the plan requires one person"}
		}
		return "", nil
	}
	if by.breakGlass != nil && Action(b.Action) == People {
		return "", &refusal.FieldError{Field: "break_glass", Problem: "must not be given: what holds after the incident takes two people"}
	}
	planned, started := access.Person{Principal: b.Actor, Key: b.PlannedKey}, access.Person{Principal: by.actor, Key: by.Key}
	people := by.people
	switch {
	case by.NoKeys:
	case by.unattended():
		return "a program may make a plan, but not start it", nil
	case by.breakGlass != nil:
		if !by.isApprover() {
			return "only an approver may start it alone, for an incident", nil
		}
		if !access.SamePerson(planned, started, by.keys) {
			return "", &refusal.FieldError{Field: "break_glass", Problem: "must not be given: another person made the plan"}
		}
		people = 1
	case people == 1:
	case access.SamePerson(planned, started, by.keys):
		return "the plan's author, the maker of the author's key, and owners of keys that the author or that maker made count as the same person", nil
	}
	b.People = people
	if by.breakGlass != nil {
		b.Incident, b.IncidentReason = validate.Clean(by.breakGlass.Incident, 255), validate.Clean(by.breakGlass.Reason, 1024)
	}
	return "", nil
}

// listed returns a page of the plans that f selects, before one, and whether there may be more.
func (p Plans) listed(ctx context.Context, f Filter, before uuid.UUID) (page []plans.Plan, more bool, err error) {
	if !f.WaitingForMe {
		page, err = p.s.stored.List(ctx, p.tenant, f.State, before, plansPerPage+1)
		return page[:min(len(page), plansPerPage)], len(page) > plansPerPage, err
	}
	if err := validate.Identifier("actor", p.actor, 128); err != nil {
		return nil, false, err
	}
	by, err := p.s.newStarter(ctx, p.tenant, p.actor, nil)
	if err != nil || !by.isApprover() {
		return nil, false, err
	}
	for more = true; more && len(page) < plansPerPage; {
		found, err := p.s.stored.ListWaiting(ctx, p.tenant, before, plansPerPage+1)
		if err != nil {
			return nil, false, err
		}
		more = len(found) > plansPerPage
		for _, b := range found[:min(len(found), plansPerPage)] {
			if len(page) == plansPerPage {
				return page, true, nil
			}
			before = b.ID
			asked := b
			switch because, err := by.authorize(&asked); {
			case err != nil:
				return nil, false, err
			case because == "":
				page = append(page, b)
			}
		}
	}
	return page, more, nil
}

// Refuse refuses a plan that nobody has started, for good, in the name of a person who may start it. Nothing is done. Its
// author, who cancels it instead, and programs can't. A refused plan is unchanged.
//
// Errors:
//   - *FieldError of actor: the actor may not start the plan
//   - *StateError: the plan was started or cancelled
//   - ErrNotFound: the tenant has no such plan
func (p Plans) Refuse(ctx context.Context, id uuid.UUID, reason string) (Plan, error) {
	if err := validate.Actor(p.actor, reason); err != nil {
		return Plan{}, err
	}
	by, err := p.s.newStarter(ctx, p.tenant, p.actor, nil)
	if err != nil {
		return Plan{}, err
	}
	return p.s.change(ctx, p.tenant, id, p.actor, reason, func(b *plans.Plan, _ bool) error {
		asked := *b
		because, err := by.authorize(&asked)
		switch {
		case err != nil:
			return err
		case because != "" || !by.isApprover():
			return &refusal.FieldError{Field: "actor", Problem: "must be a person who may start the plan; its author can cancel it. " + because}
		case b.State == Refused:
			return journal.ErrNoChange
		case b.State != Planned:
			return &StateError{b.ID, b.State, string(Refused)}
		}
		b.OutcomesKnown, b.State, b.EndedAt = true, Refused, p.s.now()
		return nil
	})
}

// unattended reports whether the caller is no person, by name or by a key that may only submit.
func (by *planStarter) unattended() bool {
	if access.IsProgram(by.actor) {
		return true
	}
	k := by.presentedKey()
	return k != nil && len(k.Roles) == 1 && k.Roles[0] == access.Submitter
}

// isApprover reports whether the caller's key is an approver's. A caller without a key has direct
// access to the database, where there are no roles.
func (by *planStarter) isApprover() bool {
	if by.Key == "" {
		return true
	}
	k := by.presentedKey()
	return k != nil && access.May(k.Roles, access.BulkRun)
}

func (by *planStarter) presentedKey() *access.Key {
	for i := range by.keys {
		if by.Key != "" && by.keys[i].Prefix == by.Key {
			return &by.keys[i]
		}
	}
	return nil
}

// alarmBreakGlass logs that one person started a plan that requires two.
func (p *Planner) alarmBreakGlass(b plans.Plan) {
	p.log.Error("one person started a plan that requires two, for an incident", zap.Stringer("bulk", b.ID), zap.String("tenant", b.Tenant), zap.String("action", b.Action),
		zap.String("planned_by", b.Actor), zap.String("started_by", b.StartedBy), zap.String("incident", b.Incident))
}

// recordSecondPersonRefusal writes a receipt of a plan that an actor may not start.
func (p *Planner) recordSecondPersonRefusal(ctx context.Context, tenant, actor string, refused *SecondPersonError) error {
	action, plan := string(access.BulkRun), refused.Plan.ID.String()
	failed := p.applier.Refusals.RecordRefusalOnce(ctx, tenant, receipts.CaseID{}, receipts.Draft{Actor: actor, At: p.now(), Payload: receipts.Payload{
		AskedFor: action, RefusedBy: refused.Code(), Bulk: plan, ContentDigest: casework.RefusalDigest(action, refused.Code(), plan, actor, casework.CallerOf(ctx).Key),
	}})
	if failed != nil {
		return casework.RefusalNotRecorded(refused.Code(), failed)
	}
	return refused
}
