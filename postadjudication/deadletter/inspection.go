package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Inspection holds everything that an operator needs to judge a dead letter.
type Inspection struct {
	Letter      Letter             `json:"letter"`
	Actions     []Action           `json:"actions"`           // which actions are allowed now
	Annotations Annotations        `json:"annotations"`       // with the reasons of hold and marks
	Lookups     *Lookups           `json:"lookups,omitempty"` // of an open letter of unknown outcome: the answers to the lookup loop
	Attempts    []Attempt          `json:"attempts"`          // of the letter's run, in order
	Run         casestatus.Status  `json:"run"`
	Case        casestatus.Case    `json:"case"`              // its money, and all its runs: parents and forks
	Handler     *casestatus.Status `json:"handler,omitempty"` // the run that handles the letter
	Receipts    []InspectedReceipt `json:"receipts"`          // the first of the case
	// ReceiptsAfter is set if more receipts follow: read them with Receipts after this sequence number.
	ReceiptsAfter int64 `json:"receipts_after,omitempty"`
}

// InspectedReceipt is the content of a receipt.
type InspectedReceipt struct {
	ID       string            `json:"id"`
	Sequence int64             `json:"sequence"`
	Run      *background.RunID `json:"run_id,omitempty"`
	Source   receipts.Source   `json:"source"`
	Subtype  receipts.Subtype  `json:"subtype"`
	Actor    string            `json:"actor"`
	At       time.Time         `json:"at"`
	Payload  json.RawMessage   `json:"payload"`
}

// inspectedReceipts is the maximum number of receipts in an inspection.
const inspectedReceipts = 200

// Attempt is one call of the executor, as its receipts state it.
type Attempt struct {
	Number    int              `json:"attempt"`
	StartedAt time.Time        `json:"started_at"`
	EndedAt   *time.Time       `json:"ended_at,omitempty"`
	EndedBy   receipts.Subtype `json:"ended_by,omitempty"`
	Class     escrow.Class     `json:"outcome_class,omitempty"`
	Error     *AttemptError    `json:"error,omitempty"`
	Duration  int64            `json:"duration_us,omitempty"`
	Worker    string           `json:"worker,omitempty"`
	TraceID   string           `json:"trace_id,omitempty"`
}

// AttemptError is the error of an attempt. It was redacted before it was stored.
type AttemptError struct {
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Stack   string `json:"stack,omitempty"` // when it panicked
}

// Inspect returns everything about a dead letter of a tenant. Errors: refusal.ErrNotFound if the
// tenant has no such run, if the run is not a letter, or if the letter was purged. Status and
// Case still return a purged letter's run and case.
func (l Letters) Inspect(ctx context.Context, id background.RunID) (Inspection, error) {
	seen, err := l.s.Applier.OwnRun(ctx, l.tenant, id)
	if err != nil {
		return Inspection{}, err
	}
	if _, err := casework.PermittedRuns(ctx, l.s.Journal, l.tenant, seen); err != nil {
		return Inspection{}, err
	}
	found, err := l.List(ctx, Query{Filter: Filter{Dispatch: casework.DispatchReference(&seen.Run)}, Limit: 1})
	switch {
	case err != nil:
		return Inspection{}, err
	case len(found.Letters) == 0 || found.Letters[0].Run != id:
		return Inspection{}, refusal.ErrNotFound
	}
	out := Inspection{Letter: found.Letters[0]}
	rows, err := l.s.Journal.Letters.ByID(ctx, id)
	switch {
	case err != nil:
		return Inspection{}, err
	case len(rows) == 0:
		return Inspection{}, refusal.ErrNotFound
	}
	runs, trail, err := l.s.Journal.Cases.WithTrail(ctx, l.tenant, seen.Case.ID)
	if err != nil {
		return Inspection{}, err
	}
	out.Annotations = l.s.annotationsOf(rows[0])
	if out.Actions, err = l.s.actionsOn(ctx, rows[0], runs); err != nil {
		return Inspection{}, err
	}
	if runs, err = casework.PermittedRuns(ctx, l.s.Journal, l.tenant, runs...); err != nil {
		return Inspection{}, err
	}
	statuses, err := l.s.Statuses.StatusesOf(ctx, l.tenant, runs)
	if err != nil {
		return Inspection{}, err
	}
	out.Case = casestatus.CaseOf(runs, statuses)
	if err := l.s.Statuses.AddEscrow(ctx, &out.Case); err != nil {
		return Inspection{}, err
	}
	for _, st := range statuses {
		if st.Run == id {
			out.Run = st
		}
	}
	if out.Lookups, err = l.s.lookupsOf(ctx, seen); err != nil {
		return Inspection{}, err
	}
	if !out.Run.Handler.IsZero() {
		switch handler, err := l.s.Statuses.Status(ctx, l.tenant, out.Run.Handler); {
		case err == nil:
			out.Handler = &handler
		case !errors.Is(err, refusal.ErrNotFound): // a caller that reads only what it submitted does not read the handler
			return Inspection{}, err
		}
	}
	if out.Attempts, err = attemptsOf(id, trail); err != nil {
		return Inspection{}, err
	}
	if len(trail) > inspectedReceipts {
		trail = trail[:inspectedReceipts]
		out.ReceiptsAfter = trail[inspectedReceipts-1].Seq
	}
	out.Receipts, err = inspectReceipts(trail)
	return out, err
}

func inspectReceipts(trail []receipts.Receipt) ([]InspectedReceipt, error) {
	out := make([]InspectedReceipt, len(trail))
	for i, r := range trail {
		var body struct {
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			return nil, err
		}
		out[i] = InspectedReceipt{ID: r.ID(), Sequence: r.Seq, Source: r.Source, Subtype: r.Subtype, Actor: r.Actor, At: r.At, Payload: body.Payload}
		if !r.Run.IsZero() {
			out[i].Run = &trail[i].Run
		}
	}
	return out, nil
}

// attemptsOf reads the attempts of a run from the receipts of its case.
func attemptsOf(id background.RunID, trail []receipts.Receipt) ([]Attempt, error) {
	out := []Attempt{}
	for _, r := range trail {
		if r.Run != id {
			continue
		}
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		switch last := len(out) - 1; {
		case r.Subtype == receipts.AttemptStarted:
			out = append(out, Attempt{Number: p.Attempt, StartedAt: r.At, Worker: p.Worker, TraceID: p.TraceID})
		case r.Subtype.EndsAttempt() && last >= 0 && out[last].EndedAt == nil:
			out[last].end(r, p)
		}
	}
	return out, nil
}

func (a *Attempt) end(r receipts.Receipt, p receipts.Payload) {
	at := r.At
	a.EndedAt, a.EndedBy, a.Class, a.Duration = &at, r.Subtype, escrow.Class(p.AttemptClass), p.DurationUS
	if p.Error != (receipts.Failure{}) {
		a.Error = &AttemptError{Type: p.Error.Type, Code: p.Error.Code, Message: p.Error.Message, Stack: p.Error.Stack}
	}
}

// Action reports whether an action on a letter is allowed now, or the gate that refuses it.
// The action decides again, on the letter as it is then.
type Action struct {
	Name      refusal.Action `json:"action"`
	Allowed   bool           `json:"allowed"`
	Until     *time.Time     `json:"until,omitempty"` // the operation key protects against a second payment until then; nil: no such end
	RefusedBy refusal.Gate   `json:"refused_by,omitempty"`
	Why       string         `json:"why,omitempty"` // why the gate refuses, and what opens it
	Roles     []access.Role  `json:"roles"`         // of the keys that may ask for it

	// Findings has the classes that a finding may state now, of reconcile: both, or executed only, if the run has ended.
	Findings []escrow.Class `json:"findings,omitempty"`
}

// rolesOf has the roles of each action on a letter. A purge and freeing are plans, which an approver runs; so is a
// finding where two people are required.
var rolesOf = map[refusal.Action][]access.Role{
	refusal.ActionFork: access.Allowed(access.Fork), refusal.ActionRetry: access.Allowed(access.Fork),
	refusal.ActionReconcile: access.Allowed(access.Reconcile), refusal.ActionLookup: access.Allowed(access.Reconcile),
	refusal.ActionHold: access.Allowed(access.Hold), refusal.ActionRelease: access.Allowed(access.Hold), refusal.ActionMark: access.Allowed(access.Mark),
	refusal.ActionPurge: access.Allowed(access.BulkPlan), refusal.ActionFree: access.Allowed(access.BulkPlan), refusal.ActionAdjudicate: access.Allowed(access.Submit),
}

// actionsOn judges a letter by the gates of the actions themselves.
func (l *Repository) actionsOn(ctx context.Context, f journal.LetterRow, runs []journal.Snapshot) ([]Action, error) {
	at := l.Now()
	newest := f
	lineage := casestatus.LineageOf(runs, f.Run.ID)
	if i := slices.IndexFunc(runs, func(r journal.Snapshot) bool { return r.Run.ID == lineage[len(lineage)-1] }); i >= 0 {
		newest.Snapshot = runs[i]
	}
	all := []refusal.Action{refusal.ActionFork, refusal.ActionRetry, refusal.ActionReconcile, refusal.ActionLookup, refusal.ActionHold, refusal.ActionRelease, refusal.ActionMark, refusal.ActionPurge}
	if f.Case.Kind == journal.KindSettlement {
		all = append(all, refusal.ActionFree, refusal.ActionAdjudicate)
	}
	out := make([]Action, len(all))
	active, err := l.activeRun(ctx, f)
	if err != nil {
		return nil, err
	}
	for i, name := range all {
		judged := &f
		switch name {
		case refusal.ActionRetry:
			judged = &newest
		case refusal.ActionFree, refusal.ActionAdjudicate: // of the case
			judged = &active
		}
		gate := l.Applier.GateOf(name, judged, at)
		if name == refusal.ActionFree && gate == "" {
			if gate, err = l.Applier.FreeGate(ctx, active); err != nil {
				return nil, err
			}
		}
		out[i] = Action{Name: name, Allowed: gate == "", RefusedBy: gate, Roles: rolesOf[name]}
		if name == refusal.ActionReconcile {
			out[i].Findings = casework.FindingsTaken(f.Snapshot)
		}
		switch until := casework.ForkUntil(l.Applier.Settlements, &judged.Snapshot); {
		case gate != "":
			out[i].Why = gate.Meaning()
		case (name == refusal.ActionFork || name == refusal.ActionRetry) && !until.IsZero():
			out[i].Until = &until
		}
	}
	return out, nil
}

// activeRun returns the active run of a letter's case.
func (l *Repository) activeRun(ctx context.Context, f journal.LetterRow) (journal.LetterRow, error) {
	if f.Case.ActiveRun == f.Run.ID {
		return f, nil
	}
	rows, err := l.Journal.Letters.ByID(ctx, f.Case.ActiveRun)
	if err == nil && len(rows) == 0 {
		err = refusal.ErrNotFound
	}
	if err != nil {
		return journal.LetterRow{}, err
	}
	return rows[0], nil
}
