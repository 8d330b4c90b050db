package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// CaseFilter selects cases that meet all given conditions. The zero filter selects all.
type CaseFilter struct {
	States      []string `json:"states,omitempty"`   // any of these values of settlement_progression_status
	Reserved    bool     `json:"reserved,omitempty"` // only cases with a reservation
	Transaction string   `json:"transaction_receipt_id,omitempty"`
}

func (f CaseFilter) validate() error {
	var errs []error
	for _, s := range f.States {
		if s == "" || !slices.Contains(settlement.Statuses, settlement.Status(s)) {
			errs = append(errs, &FieldError{Field: "state", Problem: "must be one of " + strings.Join(stringsOf(settlement.Statuses[1:]...), ", ")})
		}
	}
	if len(f.Transaction) > 128 || !isPlainText(f.Transaction) {
		errs = append(errs, &FieldError{Field: "transaction_receipt_id", Problem: "must be up to 128 bytes of plain text"})
	}
	return errors.Join(errs...)
}

func (f CaseFilter) journalFilter() journal.CaseFilter {
	return journal.CaseFilter{States: f.States, Reserved: f.Reserved, Subject: f.Transaction}
}

// CaseRow is a case in a list: its money in minor units of its currency, why it is not running,
// and the allowed actions.
type CaseRow struct {
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
	Actions     []string                `json:"may"`       // names of the actions allowed now
}

// CaseMoney sums up the money of cases in one currency, in minor units.
type CaseMoney struct {
	Cases    int64 `json:"cases"`
	Reserved int64 `json:"reserved"`
	Released int64 `json:"released"`
	Refunded int64 `json:"refunded"`
}

// CasePage is a page of cases, oldest first. Total and Money cover all cases that the filter
// selects.
type CasePage struct {
	Cases []CaseRow            `json:"cases"`
	Total int64                `json:"total"`
	Money map[string]CaseMoney `json:"money"` // by currency
	Next  string               `json:"next,omitempty"`
	More  bool                 `json:"more"`
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

// List lists settlement cases in pages, including those whose dead letter was purged. cursor
// is CasePage.Next of the previous page, or empty. Invalid input is a *FieldError (joined, one
// per field).
func (t TenantCases) List(ctx context.Context, f CaseFilter, cursor string, limit int) (CasePage, error) {
	errs := []error{f.validate()}
	var after background.CaseID
	if cursor != "" {
		var err error
		if after, err = receipts.ParseCaseID(cursor); err != nil {
			errs = append(errs, &FieldError{Field: "cursor", Problem: "must be the one from the previous page"})
		}
	}
	if t.tenant == "" {
		errs = append(errs, &FieldError{Field: "tenant", Problem: "must be given"})
	}
	if limit < 1 || limit > maxLetters {
		errs = append(errs, &FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxLetters)})
	}
	if err := errors.Join(errs...); err != nil {
		return CasePage{}, err
	}
	found, err := t.s.journal.Cases.List(ctx, t.tenant, f.journalFilter(), after, limit+1)
	if err != nil {
		return CasePage{}, err
	}
	sums, err := t.s.journal.Cases.Sums(ctx, t.tenant, f.journalFilter())
	if err != nil {
		return CasePage{}, err
	}
	page := CasePage{Cases: []CaseRow{}, Money: map[string]CaseMoney{}, More: len(found) > limit}
	for _, sum := range sums {
		page.Money[sum.Currency] = CaseMoney{Cases: sum.Cases, Reserved: sum.Reserved, Released: sum.Released, Refunded: sum.Refunded}
		page.Total += sum.Cases
	}
	for i := range found[:min(len(found), limit)] {
		page.Cases = append(page.Cases, caseRowOf(&found[i]))
		page.Next = found[i].ID.String()
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

func caseRowOf(c *journal.CaseRow) CaseRow {
	out := CaseRow{
		Case: c.ID, Transaction: c.Subject, Escrow: c.Reference, Currency: c.Currency, State: c.State, UnknownOpen: c.UnknownOpen,
		Run: c.ActiveRun, RunState: c.RunState, Letter: c.Letter, Actions: []string{},
	}
	out.WaitsFor = waitsFor(c)
	out.Actions = append(out.Actions, allowedActions(c, out.WaitsFor)...)
	return out
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

// allowedActions returns the actions allowed for a case, as far as its row shows.
func allowedActions(c *journal.CaseRow, waits string) (actions []string) {
	open, freeAction := c.Letter == background.LetterOpen, ""
	if c.State.Reserved > 0 && !c.Held {
		freeAction = string(BulkFree)
	}
	switch waits {
	case "":
		if c.RunState.Waiting() && c.UnknownOpen == 0 {
			actions = append(actions, "cancel")
		}
		return actions
	case WaitsForFinding:
		if open {
			return append(actions, string(ActionLookup), string(ActionReconcile), string(ActionHold))
		}
		return append(actions, string(ActionReconcile))
	case WaitsForLetter:
		if !c.State.Underfunded() {
			actions = append(actions, string(ActionFork))
		}
		actions = append(actions, string(ActionReconcile), string(ActionHold), string(ActionPurge))
	}
	if freeAction != "" {
		actions = append(actions, freeAction)
	}
	return append(actions, "adjudicate")
}
