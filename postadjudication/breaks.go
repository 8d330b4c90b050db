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
	Invariant string          `json:"invariant"`
	Tenant    string          `json:"tenant,omitempty"`     // empty where nobody knows whose it is
	Case      receipts.CaseID `json:"case_id,omitzero"`     // where it is about one
	Run       receipts.RunID  `json:"run_id,omitzero"`      // where it is about one
	Receipt   string          `json:"receipt_id,omitempty"` // that is broken, or has no place of its own
	What      string          `json:"what"`
	Stored    string          `json:"stored,omitempty"`   // what is there, where that can be said
	Expected  string          `json:"expected,omitempty"` // what the receipts say instead, or the noted head
	once      bool            // told once, however many cases it is met in
}

// site says what a break is about, as far as that is known.
type site struct {
	tenant  string
	kase    receipts.CaseID
	run     receipts.RunID
	receipt string
}

// of is the site of a run in the same case.
func (s site) of(run receipts.RunID) site {
	s.run = run
	return s
}

// at is the site of a receipt of the same case.
func (s site) at(seq int64) site {
	s.receipt = receipts.Receipt{Case: s.kase, Seq: seq}.ID()
	return s
}

func (a *Audit) fail(invariant string, at site, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.kase, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...)})
}

// differ is fail where it can be said what is there, and what the receipts say instead.
func (a *Audit) differ(invariant string, at site, stored, expected, format string, args ...any) {
	a.addBreak(Break{Invariant: invariant, Tenant: at.tenant, Case: at.kase, Run: at.run, Receipt: at.receipt, What: fmt.Sprintf(format, args...), Stored: stored, Expected: expected})
}

// addOnce adds a break unless one of the same words was added before.
func (a *Audit) addOnce(b Break) {
	b.once = true
	a.addBreak(b)
}

func (a *Audit) addBreak(b Break) {
	if b.once {
		if a.told[b.What] {
			return
		}
		a.told[b.What] = true
	}
	if _, known := a.Broken[b.Invariant]; !known {
		a.Broken[b.Invariant] = b.What
	}
	a.InAll++
	if len(a.Breaks) < MaxBreaks {
		a.Breaks = append(a.Breaks, b)
	}
}

// Unlisted is how many breaks were found beyond those that are kept.
func (a *Audit) Unlisted() int { return a.InAll - len(a.Breaks) }

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
	maps.Copy(a.Cut, b.Cut)
	for _, each := range b.Breaks {
		a.addBreak(each)
	}
	a.InAll += b.Unlisted()
}

// NoAudit is the audit of nothing: what noted heads are compared with where their one case is
// gone.
func NoAudit() *Audit { return newAudit() }

func newAudit() *Audit {
	return &Audit{Broken: map[string]string{}, Breaks: []Break{}, Heads: map[receipts.CaseID]receipts.Head{}, Cut: map[receipts.CaseID]int64{}, tenants: map[receipts.CaseID]string{}, told: map[string]bool{}}
}
