package postadjudication

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// BulkAction is what a plan does with each of its letters.
type BulkAction string

// The actions: each is what the method of its name does with one letter, with the
// same gates.
const (
	BulkFork      BulkAction = "fork" // but of no letter that is held, since the plan does not name it
	BulkReconcile BulkAction = "reconcile_by_lookup"
	BulkPurge     BulkAction = "purge" // of letters; it needs no other confirmation than the hash
	BulkMark      BulkAction = "mark"
	BulkHold      BulkAction = "hold"
	BulkRelease   BulkAction = "release" // of holds
)

// What is planned by methods of its own, and runs as any plan does.
const (
	BulkFinding BulkAction = "finding" // that money of one run was moved: see Reconcile
	BulkFree    BulkAction = "free"    // what cases have reserved: see PlanFree
)

// BulkActions are all actions that PlanBulk plans.
var BulkActions = []BulkAction{BulkFork, BulkReconcile, BulkPurge, BulkMark, BulkHold, BulkRelease}

// BulkState is where a plan stands.
type BulkState = postgres.BulkState

// The states. A plan that is done or cancelled stays so.
const (
	BulkPlanned   = postgres.BulkPlanned
	BulkRunning   = postgres.BulkRunning
	BulkPaused    = postgres.BulkPaused
	BulkDone      = postgres.BulkDone
	BulkCancelled = postgres.BulkCancelled
)

// BulkOutcome is what became of one letter of a plan.
type BulkOutcome string

// The outcomes. A letter that was refused has OutcomeRefused, a colon and the gate.
const (
	OutcomePending   BulkOutcome = "pending"    // nothing yet
	OutcomeDone      BulkOutcome = "done"       // by this plan, and once
	OutcomePlanStale BulkOutcome = "plan_stale" // somebody else moved it since the plan was made; it was left alone
	OutcomeRefused   BulkOutcome = "refused"
	OutcomeFailed    BulkOutcome = "failed" // see BulkItem.Error; the letter can be tried again
)

// Bulk is a plan to do one thing with many letters, and how far it has got.
type Bulk struct {
	ID       uuid.UUID  `json:"id"`
	Tenant   string     `json:"tenant"`
	State    BulkState  `json:"state"`
	Action   BulkAction `json:"action"`
	Spec     BulkSpec   `json:"asked"`
	Actor    string     `json:"actor"` // who made the plan
	Reason   string     `json:"reason"`
	Parallel int        `json:"parallel"`
	Throttle int        `json:"throttle,omitempty"` // items a second; none when 0

	// What was planned. Refused are counts by the gate that would refuse a letter when
	// the plan was made; Ready and Money are of the others. Hash covers the letters with
	// their versions and amounts, the action, who asks and why: it is what RunBulk takes.
	Items   int64            `json:"items"`
	Ready   int64            `json:"ready"`
	Money   map[string]int64 `json:"money"` // currency -> minor units that stay reserved for them
	Refused map[Gate]int64   `json:"refused,omitempty"`
	Hash    string           `json:"hash"`

	// Of a plan with a condition: how many letters were looked at for it, which are all
	// that the filter selects unless a limit was reached, and how many of these were left
	// out since the condition could not be told of them.
	Scanned   int64 `json:"scanned,omitempty"`
	Undecided int64 `json:"undecided,omitempty"`

	// People is how many people it takes to let it run: two where it states or frees money,
	// forks settlements or purges them, unless the tenant takes one. Of a plan that was started
	// it is how many it took: one also where somebody let it run alone, for an incident.
	People         int    `json:"people"`
	SelfDeclared   bool   `json:"self_declared,omitempty"` // no key proves who planned or who started it
	Incident       string `json:"break_glass,omitempty"`
	IncidentReason string `json:"break_glass_reason,omitempty"`

	PlannedAt     time.Time    `json:"planned_at"`
	StartedBy     string       `json:"started_by,omitempty"` // in whose name it acts
	StartedAt     *time.Time   `json:"started_at,omitempty"`
	ChangedBy     string       `json:"changed_by,omitempty"` // who last paused, resumed or cancelled it
	ChangedReason string       `json:"changed_reason,omitempty"`
	ChangedAt     *time.Time   `json:"changed_at,omitempty"`
	EndedAt       *time.Time   `json:"ended_at,omitempty"`
	Progress      BulkProgress `json:"progress"`

	// Forks counts the runs that a plan has made by what became of them: the state that they
	// ended in, or live. Lists of plans leave it out.
	Forks map[string]int64 `json:"forks,omitempty"`
}

// BulkSpec is what a plan was asked to do, as BulkRequest has it.
type BulkSpec struct {
	Filter    LetterFilter `json:"filter"`
	Where     string       `json:"where,omitempty"`
	All       bool         `json:"all,omitempty"`
	Limit     int64        `json:"limit,omitempty"`
	Policy    string       `json:"policy,omitempty"` // as retrypolicy.Parse reads it
	Queue     string       `json:"queue,omitempty"`
	Reprocess *bool        `json:"reprocess_eligible,omitempty"`
	Review    *bool        `json:"manual_review_required,omitempty"`

	// Of what is planned by methods of its own.

	Finding   *PlannedFinding `json:"finding,omitempty"`
	Cases     *CaseFilter     `json:"cases,omitempty"`     // of free
	Reference string          `json:"reference,omitempty"` // of free: where it can be checked why
}

// PlannedFinding is what a plan of a finding states of the money of its one run.
type PlannedFinding struct {
	Class       Class  `json:"class"`
	Moved       int64  `json:"moved"` // minor units
	Reference   string `json:"reference"`
	OtherAmount bool   `json:"other_amount,omitempty"`
	Lookup      bool   `json:"lookup,omitempty"`                 // the escrow service that the planner named answered so
	LookupURL   string `json:"lookup_url,omitempty"`             // of that service
	Transaction string `json:"transaction_receipt_id,omitempty"` // of the run's case
}

// BulkProgress counts the items of a plan by what became of them. The counts add up to
// its items.
type BulkProgress struct {
	Pending   int64            `json:"pending"`
	Done      int64            `json:"done"`
	Refused   int64            `json:"refused"`
	PlanStale int64            `json:"plan_stale"`
	Failed    int64            `json:"failed"`
	ByGate    map[Gate]int64   `json:"refused_by,omitempty"`
	Money     map[string]int64 `json:"money"` // of what was done
}

// BulkItem is one letter of a plan.
type BulkItem struct {
	Position int64            `json:"position"`
	Run      background.RunID `json:"run_id"`
	Subject  string           `json:"subject,omitempty"` // of its case: the transaction receipt id of a settlement
	Amount   int64            `json:"amount,omitempty"`  // minor units that were reserved for it
	Currency string           `json:"currency,omitempty"`
	Planned  Gate             `json:"planned_refusal,omitempty"` // the gate that would have refused it when the plan was made
	Outcome  BulkOutcome      `json:"outcome"`
	Gate     Gate             `json:"refused_by,omitempty"`
	NewRun   background.RunID `json:"new_run,omitzero"` // of a fork
	Error    string           `json:"error,omitempty"`
	WaitsFor Gate             `json:"waits_for,omitempty"` // of a pending one: the gate that has to open before it is tried again
}

// bulkOf tells of a plan as it is kept, with its counts.
func bulkOf(b postgres.BulkPlan, spec BulkSpec, counts []postgres.BulkCount) Bulk {
	out := Bulk{
		ID: b.ID, Tenant: b.Tenant, State: b.State, Action: BulkAction(b.Action), Spec: spec, Actor: b.Actor, Reason: b.Reason, Parallel: b.Parallel, Throttle: b.Throttle,
		Items: b.Items, Money: map[string]int64{}, Refused: map[Gate]int64{}, Hash: hex.EncodeToString(b.Hash[:]),
		SelfDeclared: b.SelfDeclared, Incident: b.Incident, IncidentReason: b.IncidentReason, People: max(1, b.People), PlannedAt: b.PlannedAt, StartedBy: b.StartedBy, StartedAt: timeOrNil(b.StartedAt), ChangedBy: b.ChangedBy, ChangedReason: b.ChangeReason, ChangedAt: timeOrNil(b.ChangedAt), EndedAt: timeOrNil(b.EndedAt),
		Progress: BulkProgress{Pending: b.Items, ByGate: map[Gate]int64{}, Money: map[string]int64{}},
	}
	for _, c := range counts {
		switch {
		case c.ByOutcome:
			out.Progress.add(c)
		case c.Label == postgres.BulkScanned:
			out.Scanned = c.Items
		case c.Label == postgres.BulkUndecided:
			out.Undecided = c.Items
		case c.Label != "":
			out.Refused[Gate(c.Label)] += c.Items
		default:
			out.Ready += c.Items
			if c.Currency != "" {
				out.Money[c.Currency] += c.Amount
			}
		}
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (p *BulkProgress) add(c postgres.BulkCount) {
	p.Pending -= c.Items
	outcome, gate := splitOutcome(c.Label)
	switch outcome {
	case OutcomeDone:
		p.Done += c.Items
		if c.Currency != "" {
			p.Money[c.Currency] += c.Amount
		}
	case OutcomeRefused:
		p.Refused += c.Items
		p.ByGate[gate] += c.Items
	case OutcomePlanStale:
		p.PlanStale += c.Items
	default:
		p.Failed += c.Items
	}
}

// bulksPage is how many plans a page of Bulks has.
const bulksPage = 100

// BulkPage is a part of the list of plans.
type BulkPage struct {
	Bulks []Bulk `json:"bulks"`
	Next  string `json:"next,omitempty"` // asks for what follows
	More  bool   `json:"more"`
}

// BulkItemPage is a part of the letters of a plan.
type BulkItemPage struct {
	Items []BulkItem `json:"items"`
	Next  string     `json:"next,omitempty"` // asks for what follows
	More  bool       `json:"more"`
}

// Bulk tells of a plan of a tenant, and how far it has got. ErrNotFound when the
// tenant has none such.
func (s *Service) Bulk(ctx context.Context, tenant string, id uuid.UUID) (Bulk, error) {
	b, err := s.findBulk(ctx, tenant, id)
	if err != nil {
		return Bulk{}, err
	}
	out, err := s.withCounts(ctx, b)
	if err == nil && out.Action == BulkFork && out.Progress.Done > 0 {
		out.Forks, err = s.journal.CountBulkForks(ctx, id)
	}
	return out, err
}

func (s *Service) findBulk(ctx context.Context, tenant string, id uuid.UUID) (postgres.BulkPlan, error) {
	if tenant == "" {
		return postgres.BulkPlan{}, ErrNotFound
	}
	return s.journal.FindBulkPlan(ctx, tenant, id)
}

// withCounts adds the counts to a plan.
func (s *Service) withCounts(ctx context.Context, b postgres.BulkPlan) (Bulk, error) {
	counts, err := s.journal.BulkCounts(ctx, b.ID)
	if err != nil {
		return Bulk{}, err
	}
	spec, err := specOf(b)
	if err != nil {
		return Bulk{}, err
	}
	out := bulkOf(b, spec, counts)
	if b.StartedAt.IsZero() && needsTwoPeople(&b) {
		out.People, err = s.requiredPeople(ctx, b.Tenant)
	}
	return out, err
}

func specOf(b postgres.BulkPlan) (spec BulkSpec, err error) {
	if err := json.Unmarshal([]byte(b.Request), &spec); err != nil {
		return spec, fmt.Errorf("postadjudication: bulk plan %s: %w", b.ID, err)
	}
	return spec, nil
}

// Bulks lists the plans of a tenant, newest first, a page at a time. cursor is
// BulkPage.Next of the page before, or empty.
func (s *Service) Bulks(ctx context.Context, tenant, cursor string) (BulkPage, error) {
	if tenant == "" {
		return BulkPage{}, &FieldError{Field: "tenant", Problem: "must be given"}
	}
	var before uuid.UUID
	if cursor != "" {
		var err error
		if before, err = uuid.Parse(cursor); err != nil || before == (uuid.UUID{}) {
			return BulkPage{}, &FieldError{Field: "cursor", Problem: "must be the one that the page before gave"}
		}
	}
	found, err := s.journal.BulkPlans(ctx, tenant, before, bulksPage+1)
	if err != nil {
		return BulkPage{}, err
	}
	page := BulkPage{Bulks: []Bulk{}, More: len(found) > bulksPage}
	for _, b := range found[:min(len(found), bulksPage)] {
		plan, err := s.withCounts(ctx, b)
		if err != nil {
			return BulkPage{}, err
		}
		page.Bulks = append(page.Bulks, plan)
		page.Next = b.ID.String()
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// BulkItems lists the letters of a plan in the order in which they are worked on.
// outcome selects those with an outcome, such as done, pending, or refused; refused
// with a colon and a gate selects those of one gate; empty all. cursor is
// BulkItemPage.Next of the page before, or empty.
func (s *Service) BulkItems(ctx context.Context, tenant string, id uuid.UUID, cursor string, limit int, outcome string) (BulkItemPage, error) {
	if limit < 1 || limit > maxLetters {
		return BulkItemPage{}, &FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxLetters)}
	}
	word, err := storedOutcome(outcome)
	if err != nil {
		return BulkItemPage{}, err
	}
	after := int64(0)
	if cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil || after < 1 {
			return BulkItemPage{}, &FieldError{Field: "cursor", Problem: "must be the one that the page before gave"}
		}
	}
	b, err := s.findBulk(ctx, tenant, id)
	if err != nil {
		return BulkItemPage{}, err
	}
	found, err := s.journal.BulkItems(ctx, id, word, after, limit+1)
	if err != nil {
		return BulkItemPage{}, err
	}
	page := BulkItemPage{Items: []BulkItem{}, More: len(found) > limit}
	for _, i := range found[:min(len(found), limit)] {
		item := itemOf(i)
		if item.WaitsFor, err = s.itemWaitsFor(ctx, b, item); err != nil {
			return BulkItemPage{}, err
		}
		page.Items = append(page.Items, item)
		page.Next = strconv.FormatInt(i.Position, 10)
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// itemWaitsFor is the gate that an item of a running plan waits for; empty when it waits for
// its turn, or has an outcome.
func (s *Service) itemWaitsFor(ctx context.Context, b postgres.BulkPlan, i BulkItem) (Gate, error) {
	if b.State != BulkRunning || BulkAction(b.Action) != BulkFinding || i.Outcome != OutcomePending {
		return "", nil
	}
	seen, err := s.journal.Snapshot(ctx, i.Run)
	if err == nil && seen.Run.State == background.Running {
		return GateRunning, nil
	}
	return "", err
}

// storedOutcome is an outcome as the journal has it.
func storedOutcome(outcome string) (string, error) {
	switch o, gate := splitOutcome(outcome); {
	case outcome == "":
		return "", nil
	case o == OutcomeRefused && gate == "":
		return string(OutcomeRefused) + ":", nil
	case o == OutcomeRefused && isPlainText(outcome) && len(outcome) < 64:
		return outcome, nil
	case gate != "":
	case o == OutcomePending:
		return postgres.NoOutcome, nil
	case o == OutcomeDone || o == OutcomePlanStale || o == OutcomeFailed:
		return outcome, nil
	}
	return "", &FieldError{Field: "outcome", Problem: "must be one of pending, done, refused, refused:<gate>, plan_stale, failed"}
}

func splitOutcome(word string) (BulkOutcome, Gate) {
	outcome, gate, _ := strings.Cut(word, ":")
	return BulkOutcome(outcome), Gate(gate)
}

func itemOf(i postgres.BulkItem) BulkItem {
	out := BulkItem{Position: i.Position, Run: i.Run, Subject: i.Subject, Amount: i.Amount, Currency: i.Currency, Planned: Gate(i.Gate), Outcome: OutcomePending, NewRun: i.NewRun, Error: i.Error}
	if i.Outcome != "" {
		out.Outcome, out.Gate = splitOutcome(i.Outcome)
	}
	return out
}
