package postadjudication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// BulkRequest describes a plan: an action, and the open letters to apply it to.
type BulkRequest struct {
	Filter LetterFilter // selects among open letters
	Where  string       // additional condition, see LetterExpr; empty: none
	All    bool         // all open letters: required without filter and condition, refused with either
	Action BulkAction   // required
	Reason string       // required

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
	bulkParallel    = 10
	bulkParallelMax = 64
	bulkThrottleMax = 10_000
	bulkPlanChunk   = 20_000

	// BulkPlanRetention is the minimum time for which a plan that nobody starts is kept.
	BulkPlanRetention = 7 * 24 * time.Hour
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
func (p Plans) Plan(ctx context.Context, q BulkRequest) (Bulk, error) {
	q.tenant, q.actor = p.tenant, p.actor
	return p.s.planBulk(ctx, q, scanLimit{bulkScanLetters, bulkScanTimeLimit})
}

func (s *Service) planBulk(ctx context.Context, q BulkRequest, limit scanLimit) (Bulk, error) {
	condition, err := s.newPlanCondition(ctx, q.tenant, q.Where, limit)
	defer condition.done()
	if err := errors.Join(q.validate(), err); err != nil {
		return Bulk{}, err
	}
	at := s.now()
	spec := q.spec()
	text, err := json.Marshal(spec)
	if err != nil {
		return Bulk{}, err
	}
	f := q.Filter
	f.Status = background.LetterOpen
	if died := at.Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	b := plans.Plan{
		ID: newID(), Tenant: q.tenant, Action: string(q.Action), Request: string(text), Actor: q.actor, PlannedKey: callerOf(ctx).Key, Reason: cleanText(q.Reason, 1024),
		Parallel: q.Parallel, Throttle: q.Throttle, PlannedAt: at,
	}
	if b.Parallel == 0 {
		b.Parallel = bulkParallel
	}
	if err := s.plans.CatchUp(ctx); err != nil {
		return Bulk{}, err
	}
	digest := newBulkDigest(b)
	b, err = s.plans.Create(ctx, b, condition.applyTo(plans.Scope{
		Filter: s.journalFilter(f, at), Limit: q.Limit, BatchSize: bulkPlanChunk, StaleBefore: at.Add(-BulkPlanRetention), Hash: digest.Sum,
		GateOf: func(l *plans.Letter) string {
			digest.Add(l.Run.ID, l.Case.Head, l.Amount, l.Case.Currency)
			return string(s.predictGate(q.Action, l, at))
		},
	}))
	switch {
	case errors.Is(err, plans.ErrNothingPlanned):
		return Bulk{}, condition.nothingSelected()
	case err != nil:
		return Bulk{}, err
	}
	return s.withCounts(ctx, b)
}

// NothingSelectedError says that no letter was selected, so that no plan was made.
type NothingSelectedError struct {
	Scanned   int64 // letters on which the condition was evaluated; 0 without a condition
	Undecided int64 // of these: the evaluation failed
}

func (e *NothingSelectedError) Error() string {
	text := "postadjudication: nothing is selected, so no plan was made"
	if e.Undecided > 0 {
		text += fmt.Sprintf(": evaluated the condition on %d letters, and could not decide it for %d", e.Scanned, e.Undecided)
	}
	return text
}

// predictGate returns the gate that would refuse the action on a letter now, or empty. It is
// informative: the letter's turn decides.
func (s *Service) predictGate(a BulkAction, l *plans.Letter, at time.Time) Gate {
	seen := journal.Snapshot{Run: l.Run, Case: l.Case}
	switch {
	case a == BulkFork:
		return s.bulkForkGate(journal.LetterRow{Snapshot: seen, Annotations: journal.Annotations{Held: l.Held}}, at)
	case a == BulkReconcile:
		return openLetterGate(seen)
	case a == BulkPurge:
		return purgeGate(journal.LetterRow{Snapshot: seen, Annotations: journal.Annotations{Held: l.Held}})
	case l.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case a == BulkHold && l.Held:
		return GateHeld
	case a == BulkRelease && !l.Held:
		return GateNotHeld
	}
	return ""
}

// bulkForkGate returns the gate of a fork that does not name the letter, as in a plan: it also
// refuses held letters.
func (s *Service) bulkForkGate(f journal.LetterRow, at time.Time) Gate {
	if gate := s.settlements.forkGate(f.Snapshot, at); gate != "" || !f.Annotations.Held {
		return gate
	}
	return GateHeld
}

func (q *BulkRequest) validate() error {
	var errs []error
	refuse := func(wrong bool, field, problem string) {
		if wrong {
			errs = append(errs, &FieldError{Field: field, Problem: problem})
		}
	}
	errs = append(errs, requireText("tenant", q.tenant, 128), requireIdentifier("actor", q.actor, 128), requireText("reason", q.Reason, 1024), q.Filter.Validate())
	refuse(!slices.Contains(BulkActions, q.Action), "action", "must be one of "+strings.Join(stringsOf(BulkActions...), ", "))
	refuse(q.Filter.Status != background.NoLetter && q.Filter.Status != background.LetterOpen, "letter", "must be open: nothing is done with other letters")
	f := q.Filter
	f.Status = background.NoLetter
	selects := f != (LetterFilter{}) || q.Where != ""
	refuse(!selects && !q.All, "filter", "must say which letters; for all of them say so in all")
	refuse(selects && q.All, "all", "must not be given beside a filter")
	refuse(q.Limit < 0, "limit", "must not be negative")
	refuse(q.Parallel < 0 || q.Parallel > bulkParallelMax, "parallel", fmt.Sprintf("must be 1 to %d", bulkParallelMax))
	refuse(q.Throttle < 0 || q.Throttle > bulkThrottleMax, "throttle", fmt.Sprintf("must be 1 to %d, in letters per second", bulkThrottleMax))
	forks, marks := q.Action == BulkFork, q.Action == BulkMark
	refuse(q.Policy != nil && !forks, "policy", "is for forks only")
	refuse(q.Queue != "" && !forks, "queue", "is for forks only")
	refuse(len(q.Queue) > maxFilterText || !isPlainText(q.Queue), "queue", "must be the name of a queue")
	refuse((q.Reprocess != nil || q.Review != nil) != marks, "marks", "reprocess_eligible or manual_review_required must be given with the action mark, and only with it")
	if q.Policy != nil {
		errs = append(errs, validatePolicy(*q.Policy))
	}
	return errors.Join(errs...)
}

func (q *BulkRequest) spec() BulkSpec {
	a := BulkSpec{Filter: q.Filter, Where: q.Where, All: q.All, Limit: q.Limit, Queue: q.Queue, Reprocess: q.Reprocess, Review: q.Review}
	a.Filter.From, a.Filter.To = journalTime(a.Filter.From), journalTime(a.Filter.To)
	if q.Policy != nil {
		a.Policy = q.Policy.Normalize().Encode()
	}
	return a
}

// newBulkDigest returns the digest of a plan, without its items.
func newBulkDigest(b plans.Plan) binding.PlanDigest {
	return binding.NewPlanDigest(binding.Plan{Tenant: b.Tenant, Action: b.Action, Request: b.Request, Actor: b.Actor, Reason: b.Reason, PlannedKey: b.PlannedKey})
}

// scanLimit bounds the evaluation of a plan's condition.
type scanLimit struct {
	letters int64
	time    time.Duration
}

// An HTTP client waits for a plan at most 30 seconds.
const (
	bulkScanLetters   = 1_000_000
	bulkScanTimeLimit = 20 * time.Second
)

// planCondition evaluates the condition of a plan on one letter after another.
type planCondition struct {
	service            *Service
	where              *limitedCondition
	limit              scanLimit
	deadline           time.Time // set at the first letter, from the machine's clock
	scanned, undecided int64
}

// newPlanCondition returns nil for a plan without a condition. The caller must call done.
func (s *Service) newPlanCondition(ctx context.Context, tenant, where string, limit scanLimit) (*planCondition, error) {
	if where == "" {
		return nil, nil
	}
	condition, err := s.conditionLimiter.condition(ctx, tenant, where)
	return &planCondition{service: s, where: condition, limit: limit}, err
}

// done releases the condition's slot of the limiter.
func (c *planCondition) done() {
	if c != nil {
		c.where.done()
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
		return false, conditionError(fmt.Sprintf("could not be evaluated on all letters that the filter selects, only on the first %d. Narrow the filter, or give a limit", c.scanned))
	}
	c.scanned++
	matched, err := c.where.Matches(ctx, c.service.letterOf(found))
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
func (p Plans) PlanFinding(ctx context.Context, id background.RunID, f Finding) (Bulk, error) {
	f.actor = p.actor
	err := f.validate()
	if err == nil && f.Class != escrow.Executed {
		err = &FieldError{Field: "finding", Problem: "must be executed: other findings need no plan"}
	}
	if err != nil {
		return Bulk{}, err
	}
	return p.s.planFinding(ctx, p.tenant, id, f, lookupSource{})
}

// planFinding is PlanFinding for a person's finding, or for the lookup answer of the escrow
// service that the person named.
func (s *Service) planFinding(ctx context.Context, tenant string, id background.RunID, f Finding, by lookupSource) (Bulk, error) {
	seen, err := s.findingRun(ctx, tenant, id, f, by.class)
	if err != nil {
		return Bulk{}, err
	}
	found := &PlannedFinding{Class: f.Class, Moved: f.Moved, Reference: cleanText(f.Reference, maxReference), OtherAmount: f.OtherAmount, Transaction: seen.Case.Subject}
	if by.class != "" {
		found.Lookup, found.LookupURL, found.OtherAmount = true, by.url, f.Moved != seen.Case.State.Asked-seen.Case.State.Moved
	}
	return s.storePlan(ctx, plans.Plan{Tenant: tenant, Action: string(BulkFinding), Actor: f.actor, Reason: f.Reason},
		BulkSpec{Finding: found},
		[]plans.Item{itemFor(1, seen, "")})
}

// storePlan stores a plan of given items.
func (s *Service) storePlan(ctx context.Context, b plans.Plan, spec BulkSpec, items []plans.Item) (Bulk, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return Bulk{}, err
	}
	at := s.now()
	b.ID, b.Request, b.PlannedKey, b.Reason, b.Parallel, b.PlannedAt = newID(), string(text), callerOf(ctx).Key, cleanText(b.Reason, 1024), bulkParallel, at
	digest := newBulkDigest(b)
	for _, i := range items {
		digest.Add(i.Run, i.Head, i.Amount, i.Currency)
	}
	b.Hash = digest.Sum()
	if b, err = s.plans.CreateOf(ctx, b, items, at.Add(-BulkPlanRetention)); err != nil {
		return Bulk{}, err
	}
	return s.withCounts(ctx, b)
}

func itemFor(position int64, s journal.Snapshot, gate Gate) plans.Item {
	return plans.Item{Position: position, Run: s.Run.ID, Case: s.Case.ID, Head: s.Case.Head, Amount: s.Case.State.Reserved, Currency: s.Case.Currency, Gate: string(gate)}
}

// recordFinding records the finding of a plan.
func (w *planWork) recordFinding(ctx context.Context, i *plans.Item, by guard) error {
	found := w.spec.Finding
	if found == nil {
		return &FieldError{Field: "finding", Problem: "is missing from the plan"}
	}
	f := Finding{actor: w.plan.StartedBy, Reason: w.plan.Reason, Class: found.Class, Moved: found.Moved, Reference: found.Reference, OtherAmount: found.OtherAmount}
	var answered escrow.Class
	if found.Lookup {
		answered = found.Class
	}
	_, err := w.reconcile(ctx, w.plan.Tenant, i.Run, f, answered, by)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Gate == GateRunning {
		return errAttemptRunning
	}
	return err
}

// errAttemptRunning means that the item's run is being called. The item stays pending and is
// retried after the attempt ends.
var errAttemptRunning = errors.New("postadjudication: the run is being called")
