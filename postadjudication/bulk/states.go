package bulk

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// StateError says that a plan's state does not allow the requested change.
type StateError struct {
	ID        uuid.UUID
	State     State
	Requested string // state that was requested
}

func (e *StateError) Error() string {
	return fmt.Sprintf("bulk: plan %s is %s, and can't be %s", e.ID, e.State, e.Requested)
}

// Run starts a plan in the name of the actor of As, who may differ from the planner. Any running
// process executes it. hash must be the plan's hash: it confirms that the actor has seen what
// will be done. The hash is also recomputed from what is stored, so that a plan that was
// tampered with fails too. A plan that was already started is returned unchanged.
//
// A plan that states or frees money, or that forks or purges settlements, takes two people. Its
// planner can't start it, by any key that they created or that created theirs, and programs
// can't either. Such a refusal leaves a receipt. Without keys, the actor must differ from the
// planner. TenantPeople.Set changes how many people it takes.
//
// Errors:
//   - *FieldError of hash, with plan_stale: the hash is not the plan's
//   - *FieldError of action: this version does not have the action of the plan, which a newer one made
//   - *StateError: the plan is cancelled or refused
//   - *SecondPersonError: another person must start the plan
//   - ErrNotFound: the tenant has no such plan
func (p Plans) Run(ctx context.Context, id uuid.UUID, hash string) (Plan, error) {
	return p.s.start(ctx, p.tenant, id, hash, p.actor, nil)
}

// RunHere starts a purge as Run does, and works on it in this process, which writes the letters to
// its own Config.Archive. It needs no other process. It returns when the plan is done, paused or
// cancelled. It takes the plan's lock before the plan is started, so that no other process works on
// it meanwhile. A paused plan, and a running one on which no process works, are continued; one on
// which another process works is returned as it is. While the journal is unavailable, RunHere retries.
//
// If ctx ends first, the plan is paused in the name of the actor. If this process dies, the plan
// stays running: another process that runs plans continues it with its own archive, or RunHere does
// if it is called again. A process without an archive pauses a plan that was made with one.
//
// Errors: those of Run; a *FieldError of action if the plan is no purge, and of archive if the plan
// was made with an archive and this process has none.
func (p Plans) RunHere(ctx context.Context, id uuid.UUID, hash string) (Plan, error) {
	b, err := p.s.find(ctx, p.tenant, id)
	if err == nil && Action(b.Action) != Purge {
		err = &refusal.FieldError{Field: "action", Problem: "must be purge: a plan of another action is worked on by the processes that run plans"}
	}
	var spec Spec
	if err == nil {
		spec, err = specOf(b)
	}
	if err == nil && p.s.lacksArchive(spec) {
		err = &refusal.FieldError{Field: "archive", Problem: "is missing: the plan was made with an archive, and removes no letter that it did not archive"}
	}
	if err != nil {
		return Plan{}, err
	}
	return p.s.runner.runHere(ctx, b,
		func(ctx context.Context, resume bool) (Plan, error) {
			b, err := p.Run(ctx, id, hash)
			if err == nil && b.State == Paused && resume {
				b, err = p.Resume(ctx, id, "continued by the program that runs it here")
			}
			return b, err
		},
		func(ctx context.Context) (Plan, error) {
			return p.Pause(ctx, id, "the program that ran it was stopped")
		})
}

// RunBreakGlass is Run by the planner alone, because of an incident. The receipts name
// the incident, an event makes it public, and an alarm is raised: an error in the log and a
// metric. If a key proves the actor, it must be an approver's.
func (p Plans) RunBreakGlass(ctx context.Context, id uuid.UUID, hash string, by BreakGlass) (Plan, error) {
	if err := errors.Join(validate.Text("reason", by.Reason, 1024), validate.Identifier("break_glass", by.Incident, 255)); err != nil {
		return Plan{}, err
	}
	return p.s.start(ctx, p.tenant, id, hash, p.actor, &by)
}

func (p *Planner) start(ctx context.Context, tenant string, id uuid.UUID, hash, actor string, breakGlass *BreakGlass) (Plan, error) {
	if err := validate.Identifier("actor", actor, 128); err != nil {
		return Plan{}, err
	}
	b, err := p.find(ctx, tenant, id)
	if err != nil {
		return Plan{}, err
	}
	given, err := hex.DecodeString(hash)
	if err != nil || len(given) != len(b.Hash) {
		return Plan{}, &refusal.FieldError{Field: "hash", Problem: "must be the hash of the plan, in hex"}
	}
	stored, err := p.storedDigest(ctx, b)
	if err != nil {
		return Plan{}, err
	}
	if subtle.ConstantTimeCompare(given, b.Hash[:]) == 0 || stored != b.Hash {
		return Plan{}, &refusal.FieldError{Field: "hash", Problem: string(OutcomePlanStale) + ": it is not the hash of the plan: check it, or make a new plan and review it"}
	}
	if !Action(b.Action).isKnown() {
		return Plan{}, unknownAction(Action(b.Action))
	}
	by, err := p.newStarter(ctx, tenant, actor, breakGlass)
	if err != nil {
		return Plan{}, err
	}
	var reason string
	if breakGlass != nil {
		reason = breakGlass.Reason
	}
	started, err := p.change(ctx, tenant, id, actor, reason, func(b *plans.Plan, _ bool) error {
		next := *b
		because, err := by.authorize(&next)
		switch {
		case err != nil:
			return err
		case because != "":
			return &secondPersonRequired{*b, because}
		}
		switch b.State {
		case Running, Paused, Done:
			return journal.ErrNoChange
		case Cancelled, Refused:
			return &StateError{b.ID, b.State, string(Running)}
		}
		*b = next
		b.State, b.StartedBy, b.StartedAt = Running, actor, p.now()
		return nil
	})
	if err == nil && started.State == Running && started.Action.hasNoItems() {
		return p.workHere(ctx, tenant, id)
	}
	return started, err
}

// storedDigest recomputes the hash of a plan from what is stored.
func (p *Planner) storedDigest(ctx context.Context, b plans.Plan) ([32]byte, error) {
	d := newDigest(b)
	err := p.stored.EachItem(ctx, b.ID, func(i *plans.Item) { d.Add(i.Run, i.Head, i.Amount, i.Currency) })
	return d.Sum(), err
}

// Pause pauses a running plan: within a second no further item is started. Items in
// progress continue to their end. A paused plan is unchanged.
func (p Plans) Pause(ctx context.Context, id uuid.UUID, reason string) (Plan, error) {
	return p.s.switchState(ctx, p.tenant, id, p.actor, reason, Running, Paused)
}

// Resume continues a paused plan where it stopped. A running plan is unchanged.
func (p Plans) Resume(ctx context.Context, id uuid.UUID, reason string) (Plan, error) {
	return p.s.switchState(ctx, p.tenant, id, p.actor, reason, Paused, Running)
}

func (p *Planner) switchState(ctx context.Context, tenant string, id uuid.UUID, actor, reason string, from, to State) (Plan, error) {
	if err := validate.Actor(actor, reason); err != nil {
		return Plan{}, err
	}
	return p.change(ctx, tenant, id, actor, reason, func(b *plans.Plan, _ bool) error {
		switch b.State {
		case to:
			return journal.ErrNoChange
		case from:
			b.State = to
			return nil
		}
		return &StateError{b.ID, b.State, string(to)}
	})
}

// Cancel cancels a plan permanently: within a second no further item is started. What was
// done stays done. A cancelled plan is unchanged. *StateError if the plan is done or refused.
func (p Plans) Cancel(ctx context.Context, id uuid.UUID, reason string) (Plan, error) {
	if err := validate.Actor(p.actor, reason); err != nil {
		return Plan{}, err
	}
	return p.s.change(ctx, p.tenant, id, p.actor, reason, func(b *plans.Plan, _ bool) error {
		switch b.State {
		case Cancelled:
			return journal.ErrNoChange
		case Done, Refused:
			return &StateError{b.ID, b.State, string(Cancelled)}
		}
		b.OutcomesKnown = b.StartedAt.IsZero()
		b.State, b.EndedAt = Cancelled, p.s.now()
		return nil
	})
}

// change changes the state of a plan and commits the receipt with it.
func (p *Planner) change(ctx context.Context, tenant string, id uuid.UUID, actor, reason string, change func(b *plans.Plan, left bool) error) (Plan, error) {
	if tenant == "" {
		return Plan{}, refusal.ErrNotFound
	}
	at, reason := p.now(), validate.Clean(reason, 1024)
	b, err := p.stored.Update(ctx, tenant, id, func(now plans.Plan, left bool) (plans.Plan, receipts.Draft, error) {
		next := now
		if err := change(&next, left); err != nil {
			return now, receipts.Draft{}, err
		}
		if now.State != Planned || next.State != Running {
			next.ChangedBy, next.ChangeReason, next.ChangedAt = actor, reason, at
		}
		payload := receipts.Payload{
			Bulk: id.String(), AskedFor: now.Action, ContentDigest: hex.EncodeToString(now.Hash[:]), Reason: reasonOf(now, reason),
			Changes: fmt.Sprintf("%s to %s", now.State, next.State),
		}
		if now.StartedAt.IsZero() && !next.StartedAt.IsZero() {
			provenanceOf(next).Stamp(&payload)
		}
		return next, receipts.Draft{Actor: actor, At: at, Payload: payload}, nil
	})
	var required *secondPersonRequired
	if errors.As(err, &required) {
		plan, planErr := reviewed(ctx, p, required.plan)
		if planErr != nil {
			return Plan{}, planErr
		}
		return Plan{}, p.recordSecondPersonRefusal(ctx, tenant, actor, &SecondPersonError{plan, required.because})
	}
	if err != nil {
		return Plan{}, err
	}
	p.runner.notifyChanged()
	return p.withCounts(ctx, b)
}

// reasonOf returns the reason of a change of a plan, by default that of the plan.
func reasonOf(b plans.Plan, reason string) string {
	if reason == "" {
		return validate.Clean("planned by "+b.Actor+": "+b.Reason, 1024)
	}
	return reason
}
