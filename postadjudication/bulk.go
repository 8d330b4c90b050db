package postadjudication

import (
	"encoding/hex"
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
