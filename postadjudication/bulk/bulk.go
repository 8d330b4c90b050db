package bulk

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// Planner makes plans, and runs them.
type Planner struct {
	journal  *journal.Journal
	stored   *plans.Store
	applier  *casework.Applier
	index    *deadletter.Searcher
	policyOf func(ctx context.Context, tenant, family string) retrypolicy.Policy // of new runs
	runner   *runner
	// archiveLimit is for how long the archive may take no file before a purge is paused.
	archiveLimit time.Duration
	tries        int // of an item
	now          func() time.Time
	log          *zap.Logger
}

func NewPlanner(stored *plans.Store, c *casework.Applier, index *deadletter.Searcher, policyOf func(ctx context.Context, tenant, family string) retrypolicy.Policy) *Planner {
	p := &Planner{journal: c.Journal, stored: stored, applier: c, index: index, policyOf: policyOf, archiveLimit: archiveTimeLimit, tries: maxTries, now: c.Now, log: c.Log}
	p.runner = newRunner(p)
	return p
}

// As returns the plans of a tenant, made and changed in the name of actor. Reading needs no actor.
func (p *Planner) As(tenant, actor string) Plans { return Plans{p, tenant, actor} }

// Run runs plans until ctx ends, then waits for the work in progress.
func (p *Planner) Run(ctx context.Context) { p.runner.run(ctx) }

// Plans plans what is done to many dead letters or cases, and runs the plans.
type Plans struct {
	s             *Planner
	tenant, actor string
}

// Action is what a plan does with each of its letters.
type Action string

// The actions. Each does with one letter what the method of DeadLetters does, with the same
// gates: Fork, Lookup, Mark, Hold, Release. Purge has no method: only plans purge.
const (
	Fork      Action = "fork" // refuses held letters: a fork of a held letter must name it
	Reconcile Action = "reconcile_by_lookup"
	Purge     Action = "purge" // of letters; the plan's hash is the only confirmation
	Mark      Action = "mark"
	Hold      Action = "hold"
	Release   Action = "release" // of holds
)

// Actions planned by their own methods. Their plans run like any other.
const (
	Finding Action = "finding" // records that money of one run was moved; see PlanFinding
	Free    Action = "free"    // frees the reservations of cases; see PlanFree
	Return  Action = "return"  // records payments that came back; see PlanReturns
	People  Action = "people"  // sets how many people money requires; proposed by TenantPeople.Set
	Move    Action = "move"    // permits another target for the next generation of a case; see PlanMove
)

// Actions are the actions that Plan accepts.
var Actions = []Action{Fork, Reconcile, Purge, Mark, Hold, Release}

// isKnown reports whether this version has the action. A newer version may have stored another one.
func (a Action) isKnown() bool {
	return slices.Contains([]Action{Finding, Free, Return, People, Move}, a) || slices.Contains(Actions, a)
}

// unknownAction is the error of a plan, or of an item of it, whose action this version does not have.
func unknownAction(a Action) error {
	return &refusal.FieldError{Field: "action", Problem: "is not known to this version: " + string(a)}
}

// State is the state of a plan.
type State = plans.State

// The states. Done, cancelled and refused are final.
const (
	Planned   = plans.Planned
	Running   = plans.Running
	Paused    = plans.Paused
	Done      = plans.Done
	Cancelled = plans.Cancelled
	Refused   = plans.Refused // by a person who might have started it
)

// States are all states.
var States = plans.States

// Outcome is the result for one letter of a plan.
type Outcome string

// The outcomes. A refused letter has OutcomeRefused, a colon and the gate.
const (
	OutcomePending   Outcome = "pending"    // not processed yet
	OutcomeDone      Outcome = "done"       // by this plan, exactly once
	OutcomePlanStale Outcome = "plan_stale" // changed by somebody else since planning; not touched
	OutcomeRefused   Outcome = "refused"
	OutcomeFailed    Outcome = "failed" // see Item.Error; another plan may retry the letter
)

// Plan is a plan to apply one action to many letters, with its progress.
type Plan struct {
	ID       uuid.UUID `json:"id"`
	Tenant   string    `json:"tenant"`
	State    State     `json:"state"`
	Action   Action    `json:"action"`
	Spec     Spec      `json:"asked"`
	Actor    string    `json:"actor"` // who made the plan
	Reason   string    `json:"reason"`
	Parallel int       `json:"parallel"`
	Throttle int       `json:"throttle,omitempty"` // items per second; 0: no limit

	// What was planned. Refused counts letters by the gate that would have refused them at
	// planning; Ready and Money are of the others. Hash covers the tenant, the action, the
	// request (Spec), the actor and the actor's key, the reason, and the letters with their
	// versions and amounts: Run takes it as confirmation.
	Items   int64                  `json:"items"`
	Ready   int64                  `json:"ready"`
	Money   settlement.Sums        `json:"money"` // reserved
	Refused map[refusal.Gate]int64 `json:"refused,omitempty"`
	Hash    string                 `json:"hash"`

	// For a plan with a condition: Scanned is how many letters the condition was evaluated on,
	// which is all that the filter selects unless a limit was reached. Undecided is how many of
	// these were excluded because the evaluation failed.
	Scanned   int64 `json:"scanned,omitempty"`
	Undecided int64 `json:"undecided,omitempty"`

	// People is how many people must approve: two if the plan states or frees money, or forks
	// or purges settlements, unless the tenant requires only one. For a started plan it is how
	// many did approve: also one after a break-glass start by one person.
	People         int    `json:"people"`
	SelfDeclared   bool   `json:"self_declared,omitempty"` // no key proves who planned or who started it
	Incident       string `json:"break_glass,omitempty"`
	IncidentReason string `json:"break_glass_reason,omitempty"`

	PlannedAt     time.Time  `json:"planned_at"`
	StartedBy     string     `json:"started_by,omitempty"` // actor of its changes
	StartedAt     *time.Time `json:"started_at,omitempty"`
	ChangedBy     string     `json:"changed_by,omitempty"` // who last paused, resumed, cancelled or refused it
	ChangedReason string     `json:"changed_reason,omitempty"`
	ChangedAt     *time.Time `json:"changed_at,omitempty"`
	EndedAt       *time.Time `json:"ended_at,omitempty"`
	Progress      Progress   `json:"progress"`

	// Forks counts the runs that the plan created, by final state, or live. Lists of plans omit
	// it.
	Forks map[string]int64 `json:"forks,omitempty"`

	// Of a plan that nobody has started. Lists of plans omit them.

	KeptUntil *time.Time `json:"kept_until,omitempty"` // it has to be started by then: later it may be deleted
	Review    *Review    `json:"review,omitempty"`
}

// Spec is the request of a plan, as in Request.
type Spec struct {
	Filter    deadletter.Filter `json:"filter"`
	Where     string            `json:"where,omitempty"`
	All       bool              `json:"all,omitempty"`
	Limit     int64             `json:"limit,omitempty"`
	Policy    string            `json:"policy,omitempty"` // in the form of retrypolicy.Parse
	Queue     string            `json:"queue,omitempty"`
	Reprocess *bool             `json:"reprocess_eligible,omitempty"`
	Review    *bool             `json:"manual_review_required,omitempty"`
	// Archived means that the plan was made by a process with an archive. A purge then removes no
	// letter that it did not archive.
	Archived bool `json:"archived,omitempty"`

	// For plans made by their own methods.

	Finding   *PlannedFinding    `json:"finding,omitempty"`
	Cases     *casestatus.Filter `json:"cases,omitempty"`     // action free
	Reference string             `json:"reference,omitempty"` // action free: reference to the evidence
	Returns   []ReturnedPayment  `json:"returns,omitempty"`   // action return; lists of plans omit them
	People    int                `json:"people,omitempty"`    // action people: how many are required
	Move      *PlannedMove       `json:"move,omitempty"`
}

// PlannedFinding is what a plan of a finding states about the money of its run.
type PlannedFinding struct {
	Class       escrow.Class `json:"class"`
	Moved       int64        `json:"moved"`              // minor units
	Currency    string       `json:"currency,omitempty"` // of Moved, that of the case; plans of older versions do not state it
	Reference   string       `json:"reference"`
	OtherAmount bool         `json:"other_amount,omitempty"`           // another sum was moved than was left to move; the planner knew it
	Contradicts string       `json:"contradicts,omitempty"`            // what on record says the opposite; the planner knew it
	Lookup      bool         `json:"lookup,omitempty"`                 // the finding is the answer of the escrow service that the planner named
	LookupURL   string       `json:"lookup_url,omitempty"`             // URL of that service
	Transaction string       `json:"transaction_receipt_id,omitempty"` // subject of the run's case
}

// Progress counts the items of a plan by outcome. The counts add up to its items.
type Progress struct {
	Pending   int64                  `json:"pending"`
	Done      int64                  `json:"done"`
	Refused   int64                  `json:"refused"`
	PlanStale int64                  `json:"plan_stale"`
	Failed    int64                  `json:"failed"`
	ByGate    map[refusal.Gate]int64 `json:"refused_by,omitempty"`
	Money     settlement.Sums        `json:"money"` // amounts of the done items
}

// Item is one letter of a plan.
type Item struct {
	Position int64            `json:"position"`
	Run      background.RunID `json:"run_id"`
	Subject  string           `json:"subject,omitempty"` // of its case; for a settlement the transaction receipt id
	Escrow   string           `json:"escrow_reference,omitempty"`
	Cause    string           `json:"signature,omitempty"` // its letters of the same cause have the same
	Amount   int64            `json:"amount,omitempty"`    // reserved minor units
	Currency string           `json:"currency,omitempty"`
	Planned  refusal.Gate     `json:"planned_refusal,omitempty"` // gate that would have refused it at planning
	Outcome  Outcome          `json:"outcome"`
	Gate     refusal.Gate     `json:"refused_by,omitempty"`
	NewRun   background.RunID `json:"new_run,omitzero"` // created by a fork
	Error    string           `json:"error,omitempty"`
	WaitsFor refusal.Gate     `json:"waits_for,omitempty"` // pending items: the gate that must open before the next try

	// ChangedTo is the state of the letter, or of the run, of a pending item whose case changed since the plan was made. The
	// plan leaves it as it is.
	ChangedTo string `json:"changed_to,omitempty"`

	Adjudication settlement.Outcome  `json:"escrow_adjudication,omitempty"`
	DeadAt       time.Time           `json:"dead_lettered_at,omitzero"`
	Age          deadletter.Duration `json:"age,omitzero"` // since then, in whole seconds
}

// planOf converts a stored plan with its counts.
func planOf(b plans.Plan, spec Spec, counts []plans.Count) Plan {
	out := Plan{
		ID: b.ID, Tenant: b.Tenant, State: b.State, Action: Action(b.Action), Spec: spec, Actor: b.Actor, Reason: b.Reason, Parallel: b.Parallel, Throttle: b.Throttle,
		Items: b.Items, Money: settlement.Sums{}, Refused: map[refusal.Gate]int64{}, Hash: hex.EncodeToString(b.Hash[:]),
		SelfDeclared: b.SelfDeclared, Incident: b.Incident, IncidentReason: b.IncidentReason, People: max(1, b.People), PlannedAt: b.PlannedAt, StartedBy: b.StartedBy, StartedAt: casework.TimeOrNil(b.StartedAt), ChangedBy: b.ChangedBy, ChangedReason: b.ChangeReason, ChangedAt: casework.TimeOrNil(b.ChangedAt), EndedAt: casework.TimeOrNil(b.EndedAt),
		Progress: Progress{Pending: b.Items, ByGate: map[refusal.Gate]int64{}, Money: settlement.Sums{}},
	}
	for _, c := range counts {
		switch {
		case c.ByOutcome:
			out.Progress.add(c)
		case c.Label == plans.Scanned:
			out.Scanned = c.Items
		case c.Label == plans.Undecided:
			out.Undecided = c.Items
		case c.Label != "":
			out.Refused[refusal.Gate(c.Label)] += c.Items
		default:
			out.Ready += c.Items
			out.Money.Add(c.Currency, c.Amount)
		}
	}
	return out
}

func (p *Progress) add(c plans.Count) {
	p.Pending -= c.Items
	outcome, gate := splitOutcome(c.Label)
	switch outcome {
	case OutcomeDone:
		p.Done += c.Items
		p.Money.Add(c.Currency, c.Amount)
	case OutcomeRefused:
		p.Refused += c.Items
		p.ByGate[gate] += c.Items
	case OutcomePlanStale:
		p.PlanStale += c.Items
	default:
		p.Failed += c.Items
	}
}

// plansPerPage is the page size of Plans.List.
const plansPerPage = 100

// Filter selects plans of a tenant. The zero Filter selects all.
type Filter struct {
	State State // one of States; empty: any
	// WaitingForMe selects plans that nobody has started, that would do something, and that the actor of As may start.
	WaitingForMe bool
}

func (f Filter) validate() error {
	if f.WaitingForMe && f.State != "" && f.State != Planned {
		return &refusal.FieldError{Field: "state", Problem: "must be planned, or not given, beside waiting_for_me"}
	}
	if f.State == "" || slices.Contains(States, f.State) {
		return nil
	}
	return &refusal.FieldError{Field: "state", Problem: "must be one of " + strings.Join(validate.Words(States...), ", ")}
}

// Page is a page of plans.
type Page struct {
	Bulks []Plan `json:"bulks"`
	Next  string `json:"next,omitempty"` // cursor of the next page
	More  bool   `json:"more"`
}

// ItemPage is a page of a plan's letters.
type ItemPage struct {
	Items []Item `json:"items"`
	Next  string `json:"next,omitempty"` // cursor of the next page
	More  bool   `json:"more"`
}

// Get returns a plan of a tenant with its progress, or ErrNotFound.
func (p Plans) Get(ctx context.Context, id uuid.UUID) (Plan, error) {
	b, err := p.s.find(ctx, p.tenant, id)
	if err != nil {
		return Plan{}, err
	}
	out, err := reviewed(ctx, p.s, b)
	if err == nil && out.Action == Fork && out.Progress.Done > 0 {
		out.Forks, err = p.s.stored.CountForks(ctx, id)
	}
	return out, err
}

func (p *Planner) find(ctx context.Context, tenant string, id uuid.UUID) (plans.Plan, error) {
	if tenant == "" {
		return plans.Plan{}, refusal.ErrNotFound
	}
	return p.stored.Find(ctx, tenant, id)
}

// withCounts adds the counts to a plan.
func (p *Planner) withCounts(ctx context.Context, b plans.Plan) (Plan, error) {
	counts, err := p.stored.Counts(ctx, b.ID)
	if err != nil {
		return Plan{}, err
	}
	spec, err := specOf(b)
	if err != nil {
		return Plan{}, err
	}
	out := planOf(b, spec, counts)
	if b.StartedAt.IsZero() && needsTwoPeople(&b) {
		out.People, err = p.applier.RequiredPeople(ctx, b.Tenant)
	}
	return out, err
}

func specOf(b plans.Plan) (spec Spec, err error) {
	if err := json.Unmarshal([]byte(b.Request), &spec); err != nil {
		return spec, fmt.Errorf("bulk: plan %s: %w", b.ID, err)
	}
	return spec, nil
}

// List lists the plans of a tenant that f selects, newest first, in pages. cursor is Page.Next of the
// previous page, or empty.
func (p Plans) List(ctx context.Context, f Filter, cursor string) (Page, error) {
	if p.tenant == "" {
		return Page{}, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	if err := f.validate(); err != nil {
		return Page{}, err
	}
	var before uuid.UUID
	if cursor != "" {
		var err error
		if before, err = uuid.Parse(cursor); err != nil || before == (uuid.UUID{}) {
			return Page{}, &refusal.FieldError{Field: "cursor", Problem: "must be the one from the previous page"}
		}
	}
	found, more, err := p.listed(ctx, f, before)
	if err != nil {
		return Page{}, err
	}
	page := Page{Bulks: []Plan{}, More: more}
	for _, b := range found {
		plan, err := p.s.withCounts(ctx, b)
		if err != nil {
			return Page{}, err
		}
		plan.Spec.Returns = nil
		page.Bulks = append(page.Bulks, plan)
		page.Next = b.ID.String()
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// Items lists the letters of a plan in processing order. outcome filters by outcome, such
// as done, pending or refused; refused:<gate> selects one gate; empty selects all. cursor is
// ItemPage.Next of the previous page, or empty.
func (p Plans) Items(ctx context.Context, id uuid.UUID, outcome, cursor string, limit int) (ItemPage, error) {
	if limit < 1 || limit > deadletter.MaxLetters {
		return ItemPage{}, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", deadletter.MaxLetters)}
	}
	stored, err := storedOutcome(outcome)
	if err != nil {
		return ItemPage{}, err
	}
	after := int64(0)
	if cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil || after < 1 {
			return ItemPage{}, &refusal.FieldError{Field: "cursor", Problem: "must be the one from the previous page"}
		}
	}
	b, err := p.s.find(ctx, p.tenant, id)
	if err != nil {
		return ItemPage{}, err
	}
	found, err := p.s.stored.Items(ctx, id, stored, after, limit+1)
	if err != nil {
		return ItemPage{}, err
	}
	page, now := ItemPage{Items: []Item{}, More: len(found) > limit}, p.s.now()
	for _, i := range found[:min(len(found), limit)] {
		item := itemOf(i, now)
		if item.WaitsFor, err = p.s.itemWaitsFor(ctx, b, item); err != nil {
			return ItemPage{}, err
		}
		page.Items = append(page.Items, item)
		page.Next = strconv.FormatInt(i.Position, 10)
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// itemWaitsFor returns the gate that blocks an item of a running plan; empty if it only waits
// for its turn or has an outcome.
func (p *Planner) itemWaitsFor(ctx context.Context, b plans.Plan, i Item) (refusal.Gate, error) {
	if b.State != Running || Action(b.Action) != Finding || i.Outcome != OutcomePending {
		return "", nil
	}
	seen, err := p.journal.Cases.Snapshot(ctx, i.Run)
	if err == nil && seen.Run.State == background.Running {
		return refusal.GateRunning, nil
	}
	return "", err
}

// storedOutcome converts an outcome to the form in the journal.
func storedOutcome(outcome string) (string, error) {
	switch o, gate := splitOutcome(outcome); {
	case outcome == "":
		return "", nil
	case o == OutcomeRefused && gate == "":
		return string(OutcomeRefused) + ":", nil
	case o == OutcomeRefused && validate.PlainText(outcome) && len(outcome) < 64:
		return outcome, nil
	case gate != "":
	case o == OutcomePending:
		return plans.NoOutcome, nil
	case o == OutcomeDone || o == OutcomePlanStale || o == OutcomeFailed:
		return outcome, nil
	}
	return "", &refusal.FieldError{Field: "outcome", Problem: "must be one of pending, done, refused, refused:<gate>, plan_stale, failed"}
}

func splitOutcome(stored string) (Outcome, refusal.Gate) {
	outcome, gate, _ := strings.Cut(stored, ":")
	return Outcome(outcome), refusal.Gate(gate)
}
