package casestatus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Filter selects cases that meet all given conditions. The zero filter selects all.
type Filter struct {
	States      []string `json:"states,omitempty"`   // any of these values of settlement_progression_status
	Reserved    bool     `json:"reserved,omitempty"` // only cases with a reservation
	Transaction string   `json:"transaction_receipt_id,omitempty"`

	WithoutLetter bool `json:"without_letter,omitempty"` // only cases with a reservation, but no live run and no open dead letter

	// End selects cases whose transaction, or the id of a run of theirs, ends so; MinEndBytes at least.
	End string `json:"ends_with,omitempty"`
}

// MinEndBytes is the minimum length of Filter.End: shorter ends select too many cases.
const MinEndBytes = 6

// Validate returns a *refusal.FieldError for each invalid member, joined.
func (f Filter) Validate() error {
	var errs []error
	for _, s := range f.States {
		if s == "" || !slices.Contains(settlement.Statuses, settlement.Status(s)) {
			errs = append(errs, &refusal.FieldError{Field: "state", Problem: "must be one of " + strings.Join(validate.Words(settlement.Statuses[1:]...), ", ")})
		}
	}
	if f.Transaction != "" {
		errs = append(errs, validate.KnownID("transaction_receipt_id", f.Transaction, settlement.MaxIDBytes))
	}
	if f.End != "" {
		errs = append(errs, validate.KnownID("ends_with", f.End, settlement.MaxIDBytes))
	}
	if f.End != "" && len(f.End) < MinEndBytes {
		errs = append(errs, &refusal.FieldError{Field: "ends_with", Problem: fmt.Sprintf("must have at least %d bytes", MinEndBytes)})
	}
	return errors.Join(errs...)
}

// JournalFilter converts a valid filter for the journal.
func (f Filter) JournalFilter() journal.CaseFilter {
	return journal.CaseFilter{States: f.States, Reserved: f.Reserved, Subject: f.Transaction, NoLetter: f.WithoutLetter, End: f.End}
}

// Row is a case in a list: its money in minor units of its currency, why it is not running,
// and the allowed actions.
type Row struct {
	Case        background.CaseID `json:"case_id"`
	Transaction string            `json:"transaction_receipt_id"`
	Escrow      string            `json:"escrow_reference"`
	Currency    string            `json:"currency"`
	settlement.State
	UnknownOpen int                     `json:"unknown_open"`
	Run         background.RunID        `json:"run_id"` // active run of the case, or the last one
	RunState    background.State        `json:"run_state"`
	Letter      background.LetterStatus `json:"letter,omitempty"`
	WaitsFor    string                  `json:"waits_for"` // why no run is live; empty if one is or the case has ended
	Actions     []refusal.Action        `json:"may"`       // the actions that are allowed now
	Findings    []escrow.Class          `json:"findings"`  // the classes that a finding may state now: both, executed only, or none
}

// Money sums up the money of cases in one currency, in minor units.
type Money struct {
	Cases    int64          `json:"cases"`
	Reserved settlement.Sum `json:"reserved"`
	Released settlement.Sum `json:"released"`
	Refunded settlement.Sum `json:"refunded"`
	Returned settlement.Sum `json:"returned,omitzero"` // of what was released and refunded
}

// Page is a page of cases, oldest first. Total and Money cover all cases that the filter
// selects.
type Page struct {
	Cases []Row            `json:"cases"`
	Total int64            `json:"total"`
	Money map[string]Money `json:"money"` // by currency
	Next  string           `json:"next,omitempty"`
	More  bool             `json:"more"`
}

// What a case without a live run waits for.
const (
	WaitsForLetter           = "dead_letter"     // its dead letter is open: a person must fork or reconcile it
	WaitsForFinding          = "unknown_money"   // what became of its money must be found out first
	WaitsForPurgedLetter     = "purged_letter"   // its dead letter was purged; its reservation stays until freed
	WaitsForFreeing          = "cancelled_fork"  // the fork of its dead letter was cancelled; the reservation stays until freed or taken over by a higher generation
	WaitsForHigherGeneration = "adjudication"    // it was cancelled or freed: only a higher generation starts a new run
	WaitsForRestOfPayment    = "rest_of_payment" // it was paid in part: only a higher generation pays the rest; the reservation stays until freed
)

// maxCases is the maximum size of a page of cases.
const maxCases = 1000

// Cases lists the cases of a tenant.
type Cases struct {
	s      *Reader
	tenant string
}

// As returns the cases of a tenant.
func (r *Reader) As(tenant string) Cases { return Cases{r, tenant} }

// List lists settlement cases in pages, including those whose dead letter was purged. cursor
// is Page.Next of the previous page, or empty. Invalid input is a *refusal.FieldError (joined, one
// per field).
func (c Cases) List(ctx context.Context, f Filter, cursor string, limit int) (Page, error) {
	errs := []error{f.Validate()}
	var after background.CaseID
	if cursor != "" {
		var err error
		if after, err = receipts.ParseCaseID(cursor); err != nil {
			errs = append(errs, &refusal.FieldError{Field: "cursor", Problem: "must be the one from the previous page"})
		}
	}
	if c.tenant == "" {
		errs = append(errs, &refusal.FieldError{Field: "tenant", Problem: "must be given"})
	}
	if limit < 1 || limit > maxCases {
		errs = append(errs, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxCases)})
	}
	if err := errors.Join(errs...); err != nil {
		return Page{}, err
	}
	found, err := c.s.Journal.Cases.List(ctx, c.tenant, f.JournalFilter(), after, limit+1)
	if err != nil {
		return Page{}, err
	}
	sums, err := c.s.Journal.Cases.Sums(ctx, c.tenant, f.JournalFilter())
	if err != nil {
		return Page{}, err
	}
	page := Page{Cases: []Row{}, Money: map[string]Money{}, More: len(found) > limit}
	for _, sum := range sums {
		page.Money[sum.Currency] = Money{Cases: sum.Cases, Reserved: sum.Reserved, Released: sum.Released, Refunded: sum.Refunded, Returned: sum.Returned}
		page.Total += sum.Cases
	}
	found = found[:min(len(found), limit)]
	runs, err := c.runsOf(ctx, found)
	if err != nil {
		return Page{}, err
	}
	for i := range found {
		row := caseRowOf(&found[i])
		run := runs[found[i].ActiveRun]
		if row.Actions, err = c.s.allowedActions(ctx, run); err != nil {
			return Page{}, err
		}
		row.Findings = casework.FindingsTaken(run.Snapshot)
		page.Cases, page.Next = append(page.Cases, row), found[i].ID.String()
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// runsOf reads the runs of cases with their annotations. It leaves out those that this version can't read.
func (c Cases) runsOf(ctx context.Context, cases []journal.CaseRow) (map[background.RunID]journal.LetterRow, error) {
	ids := make([]background.RunID, len(cases))
	for i := range cases {
		ids[i] = cases[i].ActiveRun
	}
	rows, err := c.s.Journal.Letters.ByID(ctx, ids...)
	if err != nil {
		return nil, err
	}
	out := make(map[background.RunID]journal.LetterRow, len(rows))
	for _, r := range rows {
		out[r.Run.ID] = r
	}
	return out, nil
}

func caseRowOf(c *journal.CaseRow) Row {
	return Row{
		Case: c.ID, Transaction: c.Subject, Escrow: c.Reference, Currency: c.Currency, State: c.State, UnknownOpen: c.UnknownOpen,
		Run: c.ActiveRun, RunState: c.RunState, Letter: c.Letter, WaitsFor: waitsFor(c),
	}
}

// waitsFor returns what a case without a live run waits for.
func waitsFor(c *journal.CaseRow) string {
	unknown := c.UnknownOpen > 0 || c.Class == escrow.Unknown
	switch {
	case c.RunState.Live() || c.State.Progression.Ended():
		return ""
	case c.RunState == background.DeadLettered && unknown:
		return WaitsForFinding
	case c.Letter == background.LetterOpen:
		return WaitsForLetter
	case c.Letter == background.LetterPurged && c.State.Progression == settlement.DisputeReady:
		return WaitsForPurgedLetter
	case c.RunState == background.Cancelled && c.State.Reserved > 0:
		return WaitsForFreeing
	case c.State.Progression == settlement.PartiallySettled:
		return WaitsForRestOfPayment
	}
	return WaitsForHigherGeneration
}

// allowedActions returns the actions that their own gates allow now for the run of a case. There are none for a run
// that this version can't read.
func (r *Reader) allowedActions(ctx context.Context, f journal.LetterRow) ([]refusal.Action, error) {
	actions := []refusal.Action{}
	if f.Run.ID == (background.RunID{}) {
		return actions, nil
	}
	now := r.Applier.Now()
	for _, a := range []refusal.Action{
		refusal.ActionFork, refusal.ActionLookup, refusal.ActionReconcile, refusal.ActionHold, refusal.ActionRelease, refusal.ActionPurge,
		refusal.ActionFree, refusal.ActionCancel, refusal.ActionAdjudicate,
	} {
		gate := r.Applier.GateOf(a, &f, now)
		if a == refusal.ActionFree && gate == "" {
			var err error
			if gate, err = r.Applier.FreeGate(ctx, f); err != nil {
				return nil, err
			}
		}
		if gate == "" {
			actions = append(actions, a)
		}
	}
	return actions, nil
}
