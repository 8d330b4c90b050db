package bulk

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Plans without items: what two people agree on is in the plan itself, and takes effect when the plan ends.

func (a Action) hasNoItems() bool { return a == People || a == Move }

// workHere works on a plan without items in the process that started it, and returns the plan. Other processes may work on it as
// well.
func (p *Planner) workHere(ctx context.Context, tenant string, id uuid.UUID) (Plan, error) {
	b, err := p.find(ctx, tenant, id)
	if err == nil {
		err = p.work(ctx, b)
	}
	if err != nil {
		return Plan{}, err
	}
	if b, err = p.find(ctx, tenant, id); err != nil {
		return Plan{}, err
	}
	return p.withCounts(ctx, b)
}

// ProposePeople stores a plan to set how many people the money of a tenant requires, and changes nothing else. Plans.Run runs
// it. The plan has no effect if somebody sets the number after the plan was started. request identifies the request that asks
// for the plan, as in Request. It returns a *SecondPersonError.
func (p *Planner) ProposePeople(ctx context.Context, to journal.People, request string) error {
	plan, err := p.planWithoutItems(ctx, plans.Plan{MadeFor: request, Tenant: to.Tenant, Action: string(People), Actor: to.Actor, Reason: to.Reason}, Spec{People: to.People})
	if err != nil {
		return err
	}
	return &SecondPersonError{Plan: plan}
}

// MoveRequest asks that the next generation of a case may name another target.
type MoveRequest struct {
	Transaction string // whose case it is; required
	Target      string // which the next generation may name; required
	Reason      string // required
	Unserved    bool   // confirms a target that no process serves: one will
	Request     string // as in FreeRequest
}

// PlannedMove is what a plan of a move permits.
type PlannedMove struct {
	Transaction string           `json:"transaction_receipt_id"`
	Run         background.RunID `json:"run_id"` // the newest run of the case: the plan permits the generation that follows it
	From        string           `json:"from"`
	Target      string           `json:"target"`
}

// PlanMove stores a plan that permits the next generation of a case to name another target than the newest run has. Run runs
// it. Submissions are accepted by it once it is done; it moves no money and changes no case. Errors: *FieldError for bad
// input, which is Field unserved if neither this process nor a running one serves the target and Unserved is false;
// ErrNotFound if the tenant has no such case.
func (p Plans) PlanMove(ctx context.Context, q MoveRequest) (Plan, error) {
	if err := errors.Join(validate.Change(p.tenant, p.actor, q.Reason), validate.Identifier("target", q.Target, 128)); err != nil {
		return Plan{}, err
	}
	seen, err := p.s.journal.Cases.SubjectSnapshot(ctx, p.tenant, journal.KindSettlement, q.Transaction)
	if err == nil && seen.Run.Target == q.Target {
		err = &refusal.FieldError{Field: "target", Problem: "is the target of the case: its next generation needs no plan"}
	}
	if err == nil && !q.Unserved && !p.s.applier.Settlements.Targets.Knows(q.Target) {
		err = checkServed(ctx, p.s, q.Target)
	}
	if err != nil {
		return Plan{}, err
	}
	return p.s.planWithoutItems(ctx, plans.Plan{MadeFor: q.Request, Tenant: p.tenant, Action: string(Move), Actor: p.actor, Reason: q.Reason},
		Spec{Move: &PlannedMove{Transaction: q.Transaction, Run: seen.Run.ID, From: seen.Run.Target, Target: q.Target}})
}

// checkServed refuses a target that no running process serves: a submission that names it would be refused.
func checkServed(ctx context.Context, p *Planner, target string) error {
	if err := p.applier.Engine.MeasureClock(ctx); err != nil { // with a clock that is off, all sessions would look old
		return err
	}
	served, err := p.journal.Targets.Served(ctx, casework.Family, target, p.now().Add(-casework.SessionTimeout))
	if err == nil && !served {
		err = &refusal.FieldError{Field: "unserved", Problem: "must be true if no running process serves the target " + target + ": start one that does, or check the name"}
	}
	return err
}

func (p *Planner) planWithoutItems(ctx context.Context, b plans.Plan, spec Spec) (Plan, error) {
	if before, made, err := p.madeFor(ctx, b.Tenant, b.MadeFor); made || err != nil {
		return before, err
	}
	return p.storePlan(ctx, b, spec, nil)
}

// MovePermit names the plan that permits a move, and who made it. It is zero if none does.
type MovePermit struct{ Plan, PlannedBy string }

// PermitOf returns the permit for the generation that follows a run to name a target.
func (p *Planner) PermitOf(ctx context.Context, tenant string, run background.RunID, target string) (MovePermit, error) {
	found, err := p.stored.DoneWith(ctx, tenant, string(Move))
	for _, b := range found {
		spec, err := specOf(b)
		if err != nil {
			return MovePermit{}, err
		}
		if m := spec.Move; m != nil && m.Run == run && m.Target == target {
			return MovePermit{b.ID.String(), b.Actor}, nil
		}
	}
	return MovePermit{}, err
}

// conclude carries out a plan without items. A second call does nothing, also if somebody has set the number meanwhile.
func (w *planWork) conclude(ctx context.Context) error {
	if Action(w.plan.Action) != People {
		return nil
	}
	at := w.now()
	draft := receipts.Draft{Actor: w.plan.StartedBy, At: at, Payload: receipts.Payload{Bulk: w.plan.ID.String(), Reason: w.plan.Reason}}
	provenanceOf(w.plan).Stamp(&draft.Payload)
	draft.Payload.People = w.spec.People
	_, err := w.journal.People.Set(ctx, journal.People{Tenant: w.plan.Tenant, People: w.spec.People, Actor: w.plan.StartedBy, Reason: w.plan.Reason, At: at}, w.plan.StartedAt, draft)
	return err
}
