package audit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/recourse-dev/recourse/receipts"
)

// The invariants that Run checks. Each must hold after any fault. Their names appear in
// reports.
const (
	InvariantAccounted = "every accepted adjudication is accounted for"
	InvariantBudgets   = "budgets kept, no attempt before its time"
	InvariantLetters   = "every open letter has its one receipt and event and its case is dispute-ready"
	InvariantChains    = "every chain verifies"
	InvariantFold      = "stored state equals the fold of the receipts"
	InvariantEscrows   = "escrow sums equal the cases' sums"
	InvariantOrder     = "the order of events has every receipt once and nothing else"
)

// Invariants lists the names in the order of a report.
var Invariants = []string{InvariantAccounted, InvariantBudgets, InvariantLetters, InvariantChains, InvariantFold, InvariantEscrows, InvariantOrder}

// Report is the result of checking the trail of one or all tenants.
type Report struct {
	Cases         int               `json:"cases"`
	Runs          int               `json:"runs"`
	Receipts      int64             `json:"receipts"`
	Chains        int               `json:"chains_verified"`
	EarlyAttempts int               `json:"early_attempts"`
	Broken        map[string]string `json:"broken"`                // invariant -> first break of it
	NotChecked    []string          `json:"not_checked,omitempty"` // invariants that need rows, if the reader has receipts only; the order of events, of one case
	Breaks        []Break           `json:"breaks"`                // at most MaxBreaks
	TotalBreaks   int               `json:"breaks_in_all"`         // including those beyond MaxBreaks

	Archive *Archived `json:"archive,omitempty"` // nil without Query.Archive

	// Heads holds the last receipt of each chain; for a broken chain, the last one before the
	// break.
	Heads    receipts.Heads            `json:"-"`
	BrokenAt map[receipts.CaseID]int64 `json:"-"` // broken chains: the sequence of the first broken receipt

	oneCase           bool                       // it is of one case
	uncovered         int64                      // of one case: binding.Settlement.Uncovered
	settlementUnknown bool                       // of one case: its receipts do not give its settlement
	tenants           map[receipts.CaseID]string // tenant of each case in Heads
	reported          map[string]bool            // texts of Breaks that are reported once
}

// MaxBreaks is the number of breaks that a Report keeps. Further ones are only counted.
const MaxBreaks = 10_000

// Break is one difference between stored state and receipts.
type Break struct {
	Invariant  string          `json:"invariant"`
	Tenant     string          `json:"tenant,omitempty"`     // empty if unknown
	Case       receipts.CaseID `json:"case_id,omitzero"`     // if it concerns one
	Run        receipts.RunID  `json:"run_id,omitzero"`      // if it concerns one
	Receipt    string          `json:"receipt_id,omitempty"` // broken, or without a position in the order of events
	What       string          `json:"what"`
	Stored     string          `json:"stored,omitempty"`   // stored value, if there is one to show
	Expected   string          `json:"expected,omitempty"` // value in the receipts, or the saved head
	reportOnce bool            // report once, in however many cases it appears
}

// breakSubject identifies what a break concerns, as far as known.
type breakSubject struct {
	tenant  string
	caseID  receipts.CaseID
	run     receipts.RunID
	receipt string
}

// withRun returns the subject of a run in the same case.
func (s breakSubject) withRun(run receipts.RunID) breakSubject {
	s.run = run
	return s
}

// withReceipt returns the subject of a receipt in the same case.
func (s breakSubject) withReceipt(seq int64) breakSubject {
	s.receipt = receipts.Receipt{Case: s.caseID, Seq: seq}.ID()
	return s
}

// fail adds a break of an invariant.
func (a *Report) fail(invariant string, at breakSubject, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.caseID, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...)})
}

// failDiffering is fail with the stored value and the value in the receipts.
func (a *Report) failDiffering(invariant string, at breakSubject, stored, expected, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.caseID, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...), Stored: stored, Expected: expected})
}

// failUnreadable adds once that a receipt can't be read, so that what it records is not compared.
func (a *Report) failUnreadable(tenant string, r receipts.Receipt, err error) {
	a.addOnce(Break{Invariant: InvariantFold, Tenant: tenant, Case: r.Case, Run: r.Run, Receipt: r.ID(), What: fmt.Sprintf("receipt %s of %s can't be read: %v", r.ID(), tenant, err)})
}

// addOnce adds a break unless one with the same text was added before.
func (a *Report) addOnce(b Break) {
	b.reportOnce = true
	a.addBreak(b)
}

// addBreak adds a break, and counts it if there are too many to keep.
func (a *Report) addBreak(b Break) {
	if b.reportOnce {
		if a.reported[b.What] {
			return
		}
		a.reported[b.What] = true
	}
	if _, known := a.Broken[b.Invariant]; !known {
		a.Broken[b.Invariant] = b.What
	}
	a.TotalBreaks++
	if len(a.Breaks) < MaxBreaks {
		a.Breaks = append(a.Breaks, b)
	}
}

// Omitted returns the number of breaks found beyond MaxBreaks.
func (a *Report) Omitted() int { return a.TotalBreaks - len(a.Breaks) }

// OK reports whether nothing was broken, of what was checked.
func (a *Report) OK() bool { return len(a.Broken) == 0 }

// Verdicts on an invariant that Report.NotChecked names.
const (
	NotCheckedVerdict       = "not checked: there are receipts only"
	CheckedInPartVerdict    = "in part: what receipts alone show"
	NotCheckedForOneVerdict = "not checked for one case"
)

// Verdict returns "ok", the first break of the invariant, or why it was not checked.
func (a *Report) Verdict(invariant string) string {
	what, broken := a.Broken[invariant]
	switch {
	case broken:
		return what
	case !slices.Contains(a.NotChecked, invariant):
		return "ok"
	case a.oneCase && invariant == InvariantOrder:
		return NotCheckedForOneVerdict
	case slices.Contains(needRowsInPart, invariant):
		return CheckedInPartVerdict
	}
	return NotCheckedVerdict
}

// add adds the counts, heads and breaks of another report.
func (a *Report) add(b *Report) {
	a.Cases += b.Cases
	a.Runs += b.Runs
	a.Receipts += b.Receipts
	a.Chains += b.Chains
	a.EarlyAttempts += b.EarlyAttempts
	maps.Copy(a.Heads, b.Heads)
	maps.Copy(a.tenants, b.tenants)
	maps.Copy(a.BrokenAt, b.BrokenAt)
	for _, each := range b.Breaks {
		a.addBreak(each)
	}
	for invariant, what := range b.Broken { // also of breaks that b omitted
		if _, known := a.Broken[invariant]; !known {
			a.Broken[invariant] = what
		}
	}
	a.TotalBreaks += b.Omitted()
}

// Empty returns the report of one case that a reader lacks. Saved heads are compared with it.
func Empty(r ReceiptReader) *Report { return newAuditor(r, Query{}).newCaseReport() }

func emptyReport() *Report {
	return &Report{Broken: map[string]string{}, Breaks: []Break{}, Heads: receipts.Heads{}, BrokenAt: map[receipts.CaseID]int64{}, tenants: map[receipts.CaseID]string{}, reported: map[string]bool{}}
}
