package postadjudication

import (
	"context"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// SecondPersonError says that a plan has to be run by somebody else than who made it. What
// states or frees money by hand takes two people: one who plans it, and one who looks at the
// plan and lets it run.
type SecondPersonError struct {
	Plan    Bulk   // that waits for the other one
	Because string // why the one who asks may not run it; empty: nobody has asked to
}

// Code names the refusal for programs.
func (e *SecondPersonError) Code() string { return "second_person_required" }

func (e *SecondPersonError) Error() string {
	text := "postadjudication: bulk plan " + e.Plan.ID.String() + " has to be run by somebody else than " + e.Plan.Actor
	if e.Because != "" {
		text += ": " + e.Because
	}
	return text
}

// secondPersonRequired is a SecondPersonError of a plan as it is kept.
type secondPersonRequired struct {
	plan    postgres.BulkPlan
	because string
}

func (e *secondPersonRequired) Error() string { return e.because }

// BreakGlass lets one person run a plan alone who made it.
type BreakGlass struct {
	Actor    string // an approver where a key proves who it is; required
	Reason   string // why nobody else could; required
	Incident string // where the incident can be looked up; required
}

// provenance are what the receipts of a plan's items say of who was behind it.
type provenance struct {
	plannedBy, incident string
	people              int // 1: no second person was asked for
	declared            bool
	lookupURL           string // of the escrow service that a self-declared person asked
}

func provenanceOf(b postgres.BulkPlan) provenance {
	m := provenance{plannedBy: b.Actor, incident: b.Incident, declared: b.SelfDeclared}
	if b.People == 1 {
		m.people = 1
	}
	return m
}

func (m provenance) stamp(p *receipts.Payload) {
	p.PlannedBy, p.BreakGlass, p.People, p.SelfDeclared, p.LookupURL = m.plannedBy, m.incident, m.people, m.declared, m.lookupURL
}

// requiredPeople is how many people it takes whoever asks with a context to state or free money of
// a tenant.
func (s *Service) requiredPeople(ctx context.Context, tenant string) (int, error) {
	if callerOf(ctx).NoKeys {
		return 1, nil
	}
	p, err := s.journal.People(ctx, tenant)
	return p.People, err
}

// needsTwoPeople reports whether a plan states or frees money, forks settlements or purges them.
func needsTwoPeople(b *postgres.BulkPlan) bool {
	switch BulkAction(b.Action) {
	case BulkFinding, BulkFree:
		return true
	case BulkFork, BulkPurge:
		return b.HasSettlements
	}
	return false
}

// planStarter is who wants to let a plan run.
type planStarter struct {
	Caller
	actor      string
	breakGlass *BreakGlass // nil: not alone
	// What holds for the tenant.
	people int
	keys   []AccessKey
}

func (s *Service) newStarter(ctx context.Context, tenant, actor string, breakGlass *BreakGlass) (by planStarter, err error) {
	by = planStarter{Caller: callerOf(ctx), actor: actor, breakGlass: breakGlass}
	if by.people, err = s.requiredPeople(ctx, tenant); err != nil {
		return by, err
	}
	by.keys, err = s.journal.Keys(ctx, tenant)
	return by, err
}

// authorize says why a plan must not be started so, or writes down how it is.
func (by *planStarter) authorize(b *postgres.BulkPlan) (because string, err error) {
	b.StartedKey, b.SelfDeclared = by.Key, !by.NoKeys && (b.PlannedKey == "" || by.Key == "")
	if !needsTwoPeople(b) {
		if by.breakGlass != nil {
			return "", &FieldError{Field: "break_glass", Problem: "must not be given: the plan takes one person"}
		}
		return "", nil
	}
	planned, started := access.Person{Principal: b.Actor, Key: b.PlannedKey}, access.Person{Principal: by.actor, Key: by.Key}
	people := by.people
	switch {
	case by.NoKeys:
	case by.unattended():
		return "a program may plan, and never lets a plan run", nil
	case by.breakGlass != nil:
		if !by.isApprover() {
			return "only an approver may do it alone, for an incident", nil
		}
		people = 1
	case people == 1:
	case access.SamePerson(planned, started, by.keys):
		return "whoever made it, or made the key of who made it, or has a key that that one made, is the same person", nil
	}
	b.People = people
	if by.breakGlass != nil {
		b.Incident, b.IncidentReason = cleanText(by.breakGlass.Incident, 255), cleanText(by.breakGlass.Reason, 1024)
	}
	return "", nil
}

// unattended reports whether no person asks: by the name, or by a key that only hands over.
func (by *planStarter) unattended() bool {
	if access.IsProgram(by.actor) {
		return true
	}
	k := by.presentedKey()
	return k != nil && len(k.Roles) == 1 && k.Roles[0] == access.Submitter
}

// isApprover reports whether the key that is shown is an approver's. Beside the database there
// are no roles.
func (by *planStarter) isApprover() bool {
	if by.Key == "" {
		return true
	}
	k := by.presentedKey()
	return k != nil && access.May(k.Roles, access.BulkRun)
}

func (by *planStarter) presentedKey() *AccessKey {
	for i := range by.keys {
		if by.Key != "" && by.keys[i].Prefix == by.Key {
			return &by.keys[i]
		}
	}
	return nil
}

// alarmBreakGlass raises the alarm for a plan that one person lets run.
func (s *Service) alarmBreakGlass(b postgres.BulkPlan) {
	s.log.Error("one person let a plan run that takes two, for an incident", zap.Stringer("bulk", b.ID), zap.String("tenant", b.Tenant), zap.String("action", b.Action),
		zap.String("planned_by", b.Actor), zap.String("started_by", b.StartedBy), zap.String("incident", b.Incident))
}
