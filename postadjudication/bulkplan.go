package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// BulkRequest asks for a plan: what to do, and with which open letters.
type BulkRequest struct {
	Tenant string       // required
	Filter LetterFilter // which letters, open ones only
	Where  string       // a condition that they meet besides, see LetterExpr; empty for none
	All    bool         // all of them: required when neither filter nor condition is given, refused else
	Action BulkAction   // required
	Actor  string       // required
	Reason string       // required

	Policy    *retrypolicy.Policy // of forks; nil keeps the letters'
	Queue     string              // of forks; empty keeps the letters'
	Reprocess *bool               // of marks; nil leaves it as it is
	Review    *bool               // of marks; nil leaves it as it is

	Limit    int64 // at most so many letters, the oldest; all when 0
	Parallel int   // letters worked on at once; 10 when 0. Those forked or purged also share commits
	Throttle int   // letters a second; as fast as it goes when 0
}

const (
	bulkParallel    = 10
	bulkParallelMax = 64
	bulkThrottleMax = 10_000
	bulkPlanChunk   = 20_000

	// BulkPlanRetention is how long a plan that nobody starts is kept at least.
	BulkPlanRetention = 7 * 24 * time.Hour
)

// PlanBulk makes a plan, and changes nothing else: it stores which letters the filter
// selects now, each with its version and its money, and tells what would be refused
// now, and by which gate. Letters that die later are none of them, and one that
// anybody moves before its turn is left alone. A condition is asked of every letter that
// the filter selects, all as they are at one moment; one of which it can't be told is left
// out and counted. When they are too many to look at all of them, there is no plan, but a
// *FieldError of where. Where no letter is selected there is none either, but a
// *NothingSelectedError. Bad input is a *FieldError (joined, one per field). With a condition
// it returns ErrTooManyConditions while too many are worked on.
func (s *Service) PlanBulk(ctx context.Context, q BulkRequest) (Bulk, error) {
	return s.planBulk(ctx, q, scanLimit{bulkScanLetters, bulkScanTimeLimit})
}

func (s *Service) planBulk(ctx context.Context, q BulkRequest, limit scanLimit) (Bulk, error) {
	condition, err := s.newPlanCondition(ctx, q.Tenant, q.Where, limit)
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
	b := postgres.BulkPlan{
		ID: newID(), Tenant: q.Tenant, Action: string(q.Action), Request: string(text), Actor: q.Actor, PlannedKey: callerOf(ctx).Key, Reason: cleanText(q.Reason, 1024),
		Parallel: q.Parallel, Throttle: q.Throttle, PlannedAt: at,
	}
	if b.Parallel == 0 {
		b.Parallel = bulkParallel
	}
	if err := s.journal.CatchUpForPlan(ctx); err != nil {
		return Bulk{}, err
	}
	digest := newBulkDigest(b)
	b, err = s.journal.CreateBulkPlan(ctx, b, condition.applyTo(postgres.BulkScope{
		Filter: s.journalFilter(f, at), Limit: q.Limit, BatchSize: bulkPlanChunk, StaleBefore: at.Add(-BulkPlanRetention), Hash: digest.sum,
		GateOf: func(l *postgres.PlannedLetter) string {
			digest.add(l.Run.ID, l.Case.Head.Seq, l.Case.Head.Link, l.Amount, l.Case.Currency)
			return string(s.predictGate(q.Action, l, at))
		},
	}))
	switch {
	case errors.Is(err, postgres.ErrNothingPlanned):
		return Bulk{}, condition.nothingSelected()
	case err != nil:
		return Bulk{}, err
	}
	return s.withCounts(ctx, b)
}

// NothingSelectedError says that there is no plan since nothing is what was asked for.
type NothingSelectedError struct {
	Scanned   int64 // letters of which a condition was asked; 0 without a condition
	Undecided int64 // of these: the condition could not be told
}

func (e *NothingSelectedError) Error() string {
	text := "postadjudication: nothing is selected, and no plan was made"
	if e.Undecided > 0 {
		text += fmt.Sprintf(": of %d letters that were looked at, the condition could not be told of %d", e.Scanned, e.Undecided)
	}
	return text
}

// predictGate is the gate that would refuse an action on a letter now, or empty. It is only
// told: whether the letter is refused is decided when its turn comes.
func (s *Service) predictGate(a BulkAction, l *postgres.PlannedLetter, at time.Time) Gate {
	seen := postgres.Snapshot{Run: l.Run, Case: l.Case}
	switch {
	case a == BulkFork:
		return s.bulkForkGate(postgres.LetterRow{Snapshot: seen, Annotations: postgres.Annotations{Held: l.Held}}, at)
	case a == BulkReconcile:
		return openLetterGate(seen)
	case a == BulkPurge:
		return purgeGate(postgres.LetterRow{Snapshot: seen, Annotations: postgres.Annotations{Held: l.Held}})
	case l.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case a == BulkHold && l.Held:
		return GateHeld
	case a == BulkRelease && !l.Held:
		return GateNotHeld
	}
	return ""
}

// bulkForkGate is the gate of a fork, and of what is forked without being named: a plan
// passes by what somebody holds.
func (s *Service) bulkForkGate(f postgres.LetterRow, at time.Time) Gate {
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
	errs = append(errs, requireText("tenant", q.Tenant, 128), requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024), q.Filter.Validate())
	refuse(!slices.Contains(BulkActions, q.Action), "action", "must be one of "+strings.Join(stringsOf(BulkActions...), ", "))
	refuse(q.Filter.Status != background.NoLetter && q.Filter.Status != background.LetterOpen, "letter", "must be open: nothing is done with other letters")
	f := q.Filter
	f.Status = background.NoLetter
	selects := f != (LetterFilter{}) || q.Where != ""
	refuse(!selects && !q.All, "filter", "must say which letters; for all of them say so in all")
	refuse(selects && q.All, "all", "must not be given beside a filter")
	refuse(q.Limit < 0, "limit", "must not be negative")
	refuse(q.Parallel < 0 || q.Parallel > bulkParallelMax, "parallel", fmt.Sprintf("must be 1 to %d", bulkParallelMax))
	refuse(q.Throttle < 0 || q.Throttle > bulkThrottleMax, "throttle", fmt.Sprintf("must be 1 to %d, in letters a second", bulkThrottleMax))
	forks, marks := q.Action == BulkFork, q.Action == BulkMark
	refuse(q.Policy != nil && !forks, "policy", "is of forks only")
	refuse(q.Queue != "" && !forks, "queue", "is of forks only")
	refuse(len(q.Queue) > maxFilterText || !isPlainText(q.Queue), "queue", "must be the name of a queue")
	refuse((q.Reprocess != nil || q.Review != nil) != marks, "marks", "reprocess_eligible or manual_review_required are given with the action mark, and with no other")
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

// bulkDigest is the hash of a plan: what is asked, by whom, with which key and why, then each item.
// Every part has its length before it, or has always the same.
type bulkDigest struct{ hash.Hash }

func newBulkDigest(b postgres.BulkPlan) bulkDigest {
	d := bulkDigest{sha256.New()}
	parts := []string{"recourse/bulk/1", b.Tenant, b.Action, b.Request, b.Actor, b.Reason}
	if b.PlannedKey != "" {
		parts = append(parts, b.PlannedKey)
		parts[0] = "recourse/bulk/2"
	}
	for _, part := range parts {
		d.text(part)
	}
	return d
}

func (d bulkDigest) text(s string) {
	d.number(int64(len(s)))
	d.Write([]byte(s))
}

func (d bulkDigest) number(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.Write(b[:])
}

func (d bulkDigest) add(run background.RunID, seq int64, link [32]byte, amount int64, currency string) {
	d.Write(run[:])
	d.number(seq)
	d.Write(link[:])
	d.number(amount)
	d.text(currency)
}

func (d bulkDigest) sum() (out [32]byte) {
	copy(out[:], d.Sum(nil))
	return out
}

// scanLimit bounds what is looked at for the condition of a plan.
type scanLimit struct {
	letters int64
	time    time.Duration
}

// Whoever waits for a plan over HTTP has half a minute.
const (
	bulkScanLetters   = 1_000_000
	bulkScanTimeLimit = 20 * time.Second
)

// planCondition asks the condition of a plan of letter after letter.
type planCondition struct {
	service            *Service
	where              *limitedCondition
	limit              scanLimit
	deadline           time.Time // of the machine's clock, when the first letter was looked at
	scanned, undecided int64
}

// newPlanCondition is nil for a plan without a condition. The caller must call done.
func (s *Service) newPlanCondition(ctx context.Context, tenant, where string, limit scanLimit) (*planCondition, error) {
	if where == "" {
		return nil, nil
	}
	condition, err := s.conditionLimiter.condition(ctx, tenant, where)
	return &planCondition{service: s, where: condition, limit: limit}, err
}

// done gives the place of the condition back.
func (c *planCondition) done() {
	if c != nil {
		c.where.done()
	}
}

// nothingSelected is the error of a plan that would be empty.
func (c *planCondition) nothingSelected() error {
	if c == nil {
		return &NothingSelectedError{}
	}
	return &NothingSelectedError{Scanned: c.scanned, Undecided: c.undecided}
}

// applyTo lets a plan take only letters that meet the condition, and keep how many were
// looked at.
func (c *planCondition) applyTo(scope postgres.BulkScope) postgres.BulkScope {
	if c == nil {
		return scope
	}
	scope.Matches = c.matches
	scope.ExtraCounts = func() []postgres.BulkCount {
		return []postgres.BulkCount{{Label: postgres.BulkScanned, Items: c.scanned}, {Label: postgres.BulkUndecided, Items: c.undecided}}
	}
	return scope
}

// matches refuses to go on when the bound is reached: a plan of the part that was looked at
// would pass for one of all.
func (c *planCondition) matches(ctx context.Context, found postgres.FoundLetter) (bool, error) {
	now := time.Now()
	if c.scanned == 0 {
		c.deadline = now.Add(c.limit.time)
	}
	if c.scanned == c.limit.letters || now.After(c.deadline) {
		return false, conditionError(fmt.Sprintf("could not be told of all letters that the filter selects: %d were looked at, and others follow. Narrow the filter, or give a limit", c.scanned))
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

// PlanFinding plans a finding that money of one run was moved, as Reconcile takes it, and
// changes nothing else: the plan runs by RunBulk, and does nothing if the case has moved
// meanwhile. The errors are those of Reconcile.
func (s *Service) PlanFinding(ctx context.Context, tenant string, id background.RunID, f Finding) (Bulk, error) {
	err := f.validate()
	if err == nil && f.Class != Executed {
		err = &FieldError{Field: "finding", Problem: "must be executed: any other takes no plan"}
	}
	if err != nil {
		return Bulk{}, err
	}
	return s.planFinding(ctx, tenant, id, f, lookupSource{})
}

// planFinding is PlanFinding of what a person found, or of what the escrow service that this
// person named answered to a lookup.
func (s *Service) planFinding(ctx context.Context, tenant string, id background.RunID, f Finding, by lookupSource) (Bulk, error) {
	seen, err := s.findingRun(ctx, tenant, id, f, by.class)
	if err != nil {
		return Bulk{}, err
	}
	found := &PlannedFinding{Class: f.Class, Moved: f.Moved, Reference: cleanText(f.Reference, maxReference), OtherAmount: f.OtherAmount, Transaction: seen.Case.Subject}
	if by.class != "" {
		found.Lookup, found.LookupURL, found.OtherAmount = true, by.url, f.Moved != seen.Case.State.Asked-seen.Case.State.Moved
	}
	return s.storePlan(ctx, postgres.BulkPlan{Tenant: tenant, Action: string(BulkFinding), Actor: f.Actor, Reason: f.Reason},
		BulkSpec{Finding: found},
		[]postgres.BulkItem{itemFor(1, seen, "")})
}

// storePlan stores a plan of items that were looked up one by one.
func (s *Service) storePlan(ctx context.Context, b postgres.BulkPlan, spec BulkSpec, items []postgres.BulkItem) (Bulk, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return Bulk{}, err
	}
	at := s.now()
	b.ID, b.Request, b.PlannedKey, b.Reason, b.Parallel, b.PlannedAt = newID(), string(text), callerOf(ctx).Key, cleanText(b.Reason, 1024), bulkParallel, at
	digest := newBulkDigest(b)
	for _, i := range items {
		digest.add(i.Run, i.Head.Seq, i.Head.Link, i.Amount, i.Currency)
	}
	b.Hash = digest.sum()
	if b, err = s.journal.CreateBulkPlanOf(ctx, b, items, at.Add(-BulkPlanRetention)); err != nil {
		return Bulk{}, err
	}
	return s.withCounts(ctx, b)
}

func itemFor(position int64, s postgres.Snapshot, gate Gate) postgres.BulkItem {
	return postgres.BulkItem{Position: position, Run: s.Run.ID, Case: s.Case.ID, Head: s.Case.Head, Amount: s.Case.State.Reserved, Currency: s.Case.Currency, Gate: string(gate)}
}

// recordFinding records the finding of a plan.
func (w *planWork) recordFinding(ctx context.Context, i *postgres.BulkItem, guard *planGuard) error {
	found := w.spec.Finding
	if found == nil {
		return &FieldError{Field: "finding", Problem: "is missing in the plan"}
	}
	f := Finding{Actor: w.plan.StartedBy, Reason: w.plan.Reason, Class: found.Class, Moved: found.Moved, Reference: found.Reference, OtherAmount: found.OtherAmount}
	var answered Class
	if found.Lookup {
		answered, guard.provenance.lookupURL = found.Class, found.LookupURL
	}
	_, err := w.reconcile(ctx, w.plan.Tenant, i.Run, f, answered, guard)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Gate == GateRunning {
		return errAttemptRunning
	}
	return err
}

// errAttemptRunning means that the run of an item is being called. The item stays pending, and is
// tried again once the attempt has ended.
var errAttemptRunning = errors.New("postadjudication: the run is being called")
