package postadjudication

import (
	"fmt"
	"maps"

	"github.com/recourse-dev/recourse/receipts"
)

// MaxBreaks is the number of breaks that an Audit keeps. Further ones are only counted.
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
	Expected   string          `json:"expected,omitempty"` // value in the receipts, or the noted head
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

func (a *Audit) fail(invariant string, at breakSubject, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.caseID, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...)})
}

// failDiffering is fail with the stored value and the value in the receipts.
func (a *Audit) failDiffering(invariant string, at breakSubject, stored, expected, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.caseID, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...), Stored: stored, Expected: expected})
}

// addOnce adds a break unless one with the same text was added before.
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

// Omitted returns the number of breaks found beyond MaxBreaks.
func (a *Audit) Omitted() int { return a.TotalBreaks - len(a.Breaks) }

// OK reports whether nothing was broken.
func (a *Audit) OK() bool { return len(a.Broken) == 0 }

// Verdict returns "ok" or the first break of the invariant.
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

// EmptyAudit returns an audit without cases. Noted heads are compared with it if their case is
// missing.
func EmptyAudit() *Audit { return newAudit() }

func newAudit() *Audit {
	return &Audit{Broken: map[string]string{}, Breaks: []Break{}, Heads: map[receipts.CaseID]receipts.Head{}, BrokenAt: map[receipts.CaseID]int64{}, tenants: map[receipts.CaseID]string{}, reported: map[string]bool{}}
}
