package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Request describes a plan: an action, and the open letters to apply it to.
type Request struct {
	Filter deadletter.Filter // selects among open letters
	Where  string            // additional condition, see Condition; empty: none
	All    bool              // all open letters: required without filter and condition, refused with either
	Action Action            // required
	Reason string            // required
	// Request identifies the request that asks for the plan, so that it makes one plan only; empty: none.
	Request string

	Policy    *retrypolicy.Policy // for forks; nil keeps each letter's
	Queue     string              // for forks; empty keeps each letter's
	Reprocess *bool               // for marks; nil: unchanged
	Review    *bool               // for marks; nil: unchanged

	Limit    int64 // maximum number of letters, the oldest first; 0: all
	Parallel int   // letters processed concurrently; 0: 10. All but reconcile_by_lookup share commits
	Throttle int   // letters per second; 0: no limit

	tenant, actor string
}

const (
	defaultParallel = 10
	maxParallel     = 64
	maxThrottle     = 10_000
	planBatch       = 20_000

	// PlanRetention is the minimum time for which a plan that nobody starts is kept.
	PlanRetention = 7 * 24 * time.Hour
)

// Plan stores a plan and changes nothing else. The plan holds the letters that the filter
// selects now, each with its version and reserved money, and the gate that would refuse it now.
// Letters that die later are not part of it. A letter that anybody changes before its turn is
// not touched. A condition is evaluated on every letter that the filter selects, in one
// snapshot; a letter on which the evaluation fails is excluded and counted.
//
// Errors:
//   - *FieldError: invalid input (joined, one per field); of where also if there are too many
//     letters to evaluate the condition on all
//   - *NothingSelectedError: no letter is selected; no plan is stored
//   - ErrTooManyConditions: too many conditions are being evaluated
func (p Plans) Plan(ctx context.Context, q Request) (Plan, error) {
	q.tenant, q.actor = p.tenant, p.actor
	return p.s.create(ctx, q, scanLimit{scanLetters, scanTimeLimit})
}

func (p *Planner) create(ctx context.Context, q Request, limit scanLimit) (Plan, error) {
	condition, err := p.newPlanCondition(ctx, q.tenant, q.Where, limit)
	defer condition.done()
	if err := errors.Join(q.validate(), err); err != nil {
		return Plan{}, err
	}
	at := p.now()
	spec := q.spec(p.applier.Archive != nil)
	text, err := json.Marshal(spec)
	if err != nil {
		return Plan{}, err
	}
	f := q.Filter
	f.Status = background.LetterOpen
	if died := at.Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	if before, made, err := p.madeFor(ctx, q.tenant, q.Request); made || err != nil {
		return before, err
	}
	b := plans.Plan{
		ID: casework.NewIDAt(at), MadeFor: q.Request, Tenant: q.tenant, Action: string(q.Action), Request: string(text), Actor: q.actor, PlannedKey: casework.CallerOf(ctx).Key, Reason: validate.Clean(q.Reason, 1024),
		Parallel: q.Parallel, Throttle: q.Throttle, PlannedAt: at,
	}
	if b.Parallel == 0 {
		b.Parallel = defaultParallel
	}
	if err := p.stored.CatchUp(ctx); err != nil {
		return Plan{}, err
	}
	digest := newDigest(b)
	b, err = p.stored.Create(ctx, b, condition.applyTo(plans.Scope{
		Filter: p.index.JournalFilter(f, at), Limit: q.Limit, BatchSize: planBatch, StaleBefore: at.Add(-PlanRetention), Hash: digest.Sum,
		GateOf: func(l *plans.Letter) string {
			digest.Add(l.Run.ID, l.Case.Head, l.Amount, l.Case.Currency)
			return string(p.predictGate(q, l, at))
		},
	}))
	switch {
	case errors.Is(err, plans.ErrNothingPlanned):
		return Plan{}, condition.nothingSelected()
	case err != nil:
		return Plan{}, err
	}
	return reviewed(ctx, p, b)
}

// madeFor returns the plan that a request made, if it made one.
func (p *Planner) madeFor(ctx context.Context, tenant, request string) (b Plan, made bool, err error) {
	before, err := p.stored.MadeFor(ctx, tenant, request)
	switch {
	case errors.Is(err, refusal.ErrNotFound):
		return Plan{}, false, nil
	case err != nil:
		return Plan{}, false, err
	}
	b, err = reviewed(ctx, p, before)
	return b, err == nil, err
}

// NothingSelectedError says that no letter was selected, so that no plan was made.
type NothingSelectedError struct {
	Scanned   int64 // letters on which the condition was evaluated; 0 without a condition
	Undecided int64 // of these: the evaluation failed
}

func (e *NothingSelectedError) Error() string {
	text := "bulk: nothing is selected, so no plan was made"
	if e.Undecided > 0 {
		text += fmt.Sprintf(": evaluated the condition on %d letters, and could not decide it for %d", e.Scanned, e.Undecided)
	}
	return text
}

// predictGate returns the gate that would refuse the action on a letter now, or empty. It is
// informative: the letter's turn decides.
func (p *Planner) predictGate(q Request, l *plans.Letter, at time.Time) refusal.Gate {
	f := journal.LetterRow{Snapshot: journal.Snapshot{Run: l.Run, Case: l.Case}, Annotations: journal.Annotations{Held: l.Held}}
	switch q.Action {
	case Fork:
		return p.forkGate(f, at, q.Queue)
	case Reconcile: // the process that runs the plan may call services that this one does not
		return p.applier.GateOf(refusal.ActionReconcile, &f, at)
	}
	return p.applier.GateOf(refusal.Action(q.Action), &f, at)
}

// forkGate returns the gate of a fork that does not name the letter, as in a plan: it also
// refuses held letters.
func (p *Planner) forkGate(f journal.LetterRow, at time.Time, queue string) refusal.Gate {
	if gate := p.applier.Settlements.ForkGate(f.Snapshot, at, queue); gate != "" || !f.Annotations.Held {
		return gate
	}
	return refusal.GateHeld
}

func (q *Request) validate() error {
	var errs []error
	refuse := func(wrong bool, field, problem string) {
		if wrong {
			errs = append(errs, &refusal.FieldError{Field: field, Problem: problem})
		}
	}
	errs = append(errs, validate.KnownID("tenant", q.tenant, 128), validate.Identifier("actor", q.actor, 128), validate.Text("reason", q.Reason, 1024), q.Filter.Validate())
	refuse(!slices.Contains(Actions, q.Action), "action", "must be one of "+strings.Join(validate.Words(Actions...), ", "))
	refuse(q.Filter.Status != background.NoLetter && q.Filter.Status != background.LetterOpen, "letter", "must be open: nothing is done with other letters")
	f := q.Filter
	f.Status = background.NoLetter
	selects := f != (deadletter.Filter{}) || q.Where != ""
	refuse(!selects && !q.All, "filter", "must say which letters; for all of them say so in all")
	refuse(selects && q.All, "all", "must not be given beside a filter")
	refuse(q.Limit < 0, "limit", "must not be negative")
	refuse(q.Parallel < 0 || q.Parallel > maxParallel, "parallel", fmt.Sprintf("must be 1 to %d", maxParallel))
	refuse(q.Throttle < 0 || q.Throttle > maxThrottle, "throttle", fmt.Sprintf("must be 1 to %d, in letters per second", maxThrottle))
	forks, marks := q.Action == Fork, q.Action == Mark
	refuse(q.Policy != nil && !forks, "policy", "is for forks only")
	refuse(q.Queue != "" && !forks, "queue", "is for forks only")
	refuse(len(q.Queue) > deadletter.MaxFilterText || !validate.PlainText(q.Queue), "queue", "must be the name of a queue")
	refuse((q.Reprocess != nil || q.Review != nil) != marks, "marks", "reprocess_eligible or manual_review_required must be given with the action mark, and only with it")
	if q.Policy != nil {
		errs = append(errs, validate.Policy(*q.Policy, false))
	}
	return errors.Join(errs...)
}

// spec returns what the plan does. archives means that this process has an archive.
func (q *Request) spec(archives bool) Spec {
	a := Spec{Filter: q.Filter, Where: q.Where, All: q.All, Limit: q.Limit, Queue: q.Queue, Reprocess: q.Reprocess, Review: q.Review}
	a.Filter.From, a.Filter.To = deadletter.JournalTime(a.Filter.From), deadletter.JournalTime(a.Filter.To)
	if q.Policy != nil {
		a.Policy = q.Policy.Normalize().Encode()
	}
	a.Archived = q.Action == Purge && archives
	return a
}

// newDigest returns the digest of a plan, without its items.
func newDigest(b plans.Plan) binding.PlanDigest {
	return binding.NewPlanDigest(binding.Plan{Tenant: b.Tenant, Action: b.Action, Request: b.Request, Actor: b.Actor, Reason: b.Reason, PlannedKey: b.PlannedKey})
}

// scanLimit bounds the evaluation of a plan's condition.
type scanLimit struct {
	letters int64
	time    time.Duration
}

// An HTTP client waits for a plan at most 30 seconds.
const (
	scanLetters   = 1_000_000
	scanTimeLimit = 20 * time.Second
)

// planCondition evaluates the condition of a plan on one letter after another.
type planCondition struct {
	index              *deadletter.Searcher
	where              *deadletter.LimitedCondition
	limit              scanLimit
	deadline           time.Time // set at the first letter, from the machine's clock
	scanned, undecided int64
}

// newPlanCondition returns nil for a plan without a condition. The caller must call done.
func (p *Planner) newPlanCondition(ctx context.Context, tenant, where string, limit scanLimit) (*planCondition, error) {
	if where == "" {
		return nil, nil
	}
	condition, err := p.index.Limiter.Condition(ctx, tenant, where)
	return &planCondition{index: p.index, where: condition, limit: limit}, err
}

// done releases the condition's slot of the limiter.
func (c *planCondition) done() {
	if c != nil {
		c.where.Done()
	}
}

// nothingSelected returns the error of a plan without letters.
func (c *planCondition) nothingSelected() error {
	if c == nil {
		return &NothingSelectedError{}
	}
	return &NothingSelectedError{Scanned: c.scanned, Undecided: c.undecided}
}

// applyTo restricts the scope to letters that meet the condition, and stores how many it was
// evaluated on.
func (c *planCondition) applyTo(scope plans.Scope) plans.Scope {
	if c == nil {
		return scope
	}
	scope.Matches = c.matches
	scope.ExtraCounts = func() []plans.Count {
		return []plans.Count{{Label: plans.Scanned, Items: c.scanned}, {Label: plans.Undecided, Items: c.undecided}}
	}
	return scope
}

// matches fails when the limit is reached: a plan of the letters scanned so far would look like
// a plan of all.
func (c *planCondition) matches(ctx context.Context, found search.Letter) (bool, error) {
	now := time.Now()
	if c.scanned == 0 {
		c.deadline = now.Add(c.limit.time)
	}
	if c.scanned == c.limit.letters || now.After(c.deadline) {
		return false, deadletter.ConditionError(fmt.Sprintf("could not be evaluated on all letters that the filter selects, only on the first %d. Narrow the filter, or give a limit", c.scanned))
	}
	c.scanned++
	matched, err := c.where.Matches(ctx, c.index.LetterOf(found))
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		c.undecided++
		return false, nil
	}
	return matched, nil
}

// PlanFinding stores a plan to record a finding that money of one run was moved, as Reconcile
// takes it, and changes nothing else. Run runs it; it does nothing if the case changed
// since planning. Errors are those of Reconcile.
func (p Plans) PlanFinding(ctx context.Context, id background.RunID, f casework.Finding) (Plan, error) {
	err := f.Validate(p.actor)
	if err == nil && f.Class != escrow.Executed {
		err = &refusal.FieldError{Field: "finding", Problem: "must be executed: other findings need no plan"}
	}
	if err != nil {
		return Plan{}, err
	}
	return p.s.planFinding(ctx, p.tenant, p.actor, id, f, casework.LookupSource{})
}

// planFinding is PlanFinding for a person's finding, or for the lookup answer of the escrow
// service that the person named.
func (p *Planner) planFinding(ctx context.Context, tenant, actor string, id background.RunID, f casework.Finding, asked casework.LookupSource) (Plan, error) {
	if before, made, err := p.madeFor(ctx, tenant, f.RequestID); made || err != nil {
		return before, err
	}
	var err error
	if asked.Class == "" { // else it is as the lookup returned it
		f.Reference, err = p.applier.Settlements.References.Stated(ctx, tenant, "reference", f.Reference)
	}
	if err != nil {
		return Plan{}, err
	}
	seen, contradicted, err := p.applier.FindingRun(ctx, tenant, id, f, asked)
	if err != nil {
		return Plan{}, err
	}
	found := &PlannedFinding{Class: f.Class, Moved: f.Moved, Currency: seen.Case.Currency, Reference: f.Reference, OtherAmount: f.IsOtherAmount(&seen), Contradicts: contradicted, Transaction: seen.Case.Subject}
	if asked.Class != "" {
		found.Lookup, found.LookupURL = true, asked.URL
		if found.Contradicts, err = casework.RecordAgainst(ctx, p.applier, seen, f.Class); err != nil {
			return Plan{}, err
		}
	}
	return p.storePlan(ctx, plans.Plan{MadeFor: f.RequestID, Tenant: tenant, Action: string(Finding), Actor: actor, Reason: f.Reason},
		Spec{Finding: found},
		[]plans.Item{itemFor(1, seen, "")})
}

// Proposer returns what plans a finding that takes two people. It returns a *SecondPersonError.
func (p *Planner) Proposer() deadletter.Proposer { return p.proposeFinding }

func (p *Planner) proposeFinding(ctx context.Context, tenant, actor string, id background.RunID, f casework.Finding, asked casework.LookupSource) error {
	plan, err := p.planFinding(ctx, tenant, actor, id, f, asked)
	if err != nil {
		return err
	}
	return &SecondPersonError{Plan: plan}
}

// storePlan stores a plan of given items.
func (p *Planner) storePlan(ctx context.Context, b plans.Plan, spec Spec, items []plans.Item) (Plan, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return Plan{}, err
	}
	at := p.now()
	b.ID, b.Request, b.PlannedKey, b.Reason, b.Parallel, b.PlannedAt = casework.NewIDAt(at), string(text), casework.CallerOf(ctx).Key, validate.Clean(b.Reason, 1024), defaultParallel, at
	digest := newDigest(b)
	for _, i := range items {
		digest.Add(i.Run, i.Head, i.Amount, i.Currency)
	}
	b.Hash = digest.Sum()
	if b, err = p.stored.CreateOf(ctx, b, items, at.Add(-PlanRetention)); err != nil {
		return Plan{}, err
	}
	return reviewed(ctx, p, b)
}

func itemFor(position int64, s journal.Snapshot, gate refusal.Gate) plans.Item {
	return plans.Item{Position: position, Run: s.Run.ID, Case: s.Case.ID, Head: s.Case.Head, Amount: s.Case.State.Reserved, Currency: s.Case.Currency, Gate: string(gate)}
}

// recordFinding records the finding of a plan.
func (w *planWork) recordFinding(ctx context.Context, i *plans.Item, guard casework.Guard) error {
	found := w.spec.Finding
	if found == nil {
		return &refusal.FieldError{Field: "finding", Problem: "is missing from the plan"}
	}
	f := casework.Finding{Reason: w.plan.Reason, Class: found.Class, Moved: found.Moved, Currency: found.Currency, Reference: found.Reference, OtherAmount: found.OtherAmount, ContradictsRecord: found.Contradicts != ""}
	var asked casework.LookupSource
	if found.Lookup {
		asked.Class = found.Class
	}
	_, err := w.applier.Reconcile(ctx, w.plan.Tenant, i.Run, w.plan.StartedBy, f, asked, guard)
	var refused *refusal.RefusedError
	if errors.As(err, &refused) && refused.Gate == refusal.GateRunning {
		return errAttemptRunning
	}
	return err
}

// errAttemptRunning means that the item's run is being called. The item stays pending and is
// retried after the attempt ends.
var errAttemptRunning = errors.New("bulk: the run is being called")
