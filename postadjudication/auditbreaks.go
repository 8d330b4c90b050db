package postadjudication

import (
	"fmt"
	"maps"

	"github.com/recourse-dev/recourse/receipts"
)

// MaxBreaks is how many breaks an Audit keeps; those beyond are counted.
const MaxBreaks = 10_000

// Break is one thing that is not as the evidence says.
type Break struct {
	Invariant  string          `json:"invariant"`
	Tenant     string          `json:"tenant,omitempty"`     // empty where nobody knows whose it is
	Case       receipts.CaseID `json:"case_id,omitzero"`     // where it is about one
	Run        receipts.RunID  `json:"run_id,omitzero"`      // where it is about one
	Receipt    string          `json:"receipt_id,omitempty"` // that is broken, or has no place of its own
	What       string          `json:"what"`
	Stored     string          `json:"stored,omitempty"`   // what is there, where that can be said
	Expected   string          `json:"expected,omitempty"` // what the receipts say instead, or the noted head
	reportOnce bool            // told once, however many cases it is met in
}

// breakSubject says what a break is about, as far as that is known.
type breakSubject struct {
	tenant  string
	caseID  receipts.CaseID
	run     receipts.RunID
	receipt string
}

// withRun is the site of a run in the same case.
func (s breakSubject) withRun(run receipts.RunID) breakSubject {
	s.run = run
	return s
}

// withReceipt is the site of a receipt of the same case.
func (s breakSubject) withReceipt(seq int64) breakSubject {
	s.receipt = receipts.Receipt{Case: s.caseID, Seq: seq}.ID()
	return s
}

func (a *Audit) fail(invariant string, at breakSubject, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.caseID, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...)})
}

// failDiffering is fail where it can be said what is there, and what the receipts say instead.
func (a *Audit) failDiffering(invariant string, at breakSubject, stored, expected, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.caseID, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...), Stored: stored, Expected: expected})
}

// addOnce adds a break unless one of the same words was added before.
func (a *Audit) addOnce(b Break) {
	b.reportOnce = true
	a.addBreak(b)
}

func (a *Audit) addBreak(b Break) {
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

// Omitted is how many breaks were found beyond those that are kept.
func (a *Audit) Omitted() int { return a.TotalBreaks - len(a.Breaks) }

// OK reports whether nothing was broken.
func (a *Audit) OK() bool { return len(a.Broken) == 0 }

// Verdict is "ok" or the first thing that broke the invariant.
func (a *Audit) Verdict(invariant string) string {
	if what, ok := a.Broken[invariant]; ok {
		return what
	}
	return "ok"
}

func (a *Audit) add(b *Audit) {
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
	a.TotalBreaks += b.Omitted()
}

// EmptyAudit is the audit of nothing: what noted heads are compared with where their one case is
// gone.
func EmptyAudit() *Audit { return newAudit() }

func newAudit() *Audit {
	return &Audit{Broken: map[string]string{}, Breaks: []Break{}, Heads: map[receipts.CaseID]receipts.Head{}, BrokenAt: map[receipts.CaseID]int64{}, tenants: map[receipts.CaseID]string{}, reported: map[string]bool{}}
}
