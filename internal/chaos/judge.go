package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// verdict is what must be true, and what of it is not.
type verdict struct {
	Accepted  int            `json:"accepted"`
	Places    map[string]int `json:"places"` // where the runs are; they add up to Runs
	Runs      int            `json:"runs"`
	Cases     int            `json:"cases"`
	Receipts  int64          `json:"receipts"`
	Calls     int            `json:"calls_of_the_escrow_service"`
	Effects   int            `json:"effects"`
	Doubles   int            `json:"double_effects"`
	Unproven  int            `json:"effects_behind_open_unknowns"`
	Early     int            `json:"early_attempts"`
	Recovered int            `json:"attempts_interrupted"`
	Late      int            `json:"answered_late"`
	Touched   map[string]int `json:"out_of_band"` // what receipts say that somebody did to tasks
	Broken    []string       `json:"broken"`
}

func (v *verdict) breaks(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

// judge holds what Recourse says of everything that was handed over against its own
// receipts and against the escrow service's ledger. Nothing may be live any more.
func judge(ctx context.Context, s *postadjudication.Service, escrow *fakeescrow.Service, a *accepted) (*verdict, error) {
	v := &verdict{Accepted: len(a.runs) + len(a.more), Places: map[string]int{}, Touched: map[string]int{}, Broken: []string{}}
	audit, err := s.Audit(ctx)
	if err != nil {
		return nil, err
	}
	v.Cases, v.Receipts, v.Early = audit.Cases, audit.Receipts, audit.EarlyAttempts
	for _, name := range postadjudication.Invariants {
		if said := audit.Verdict(name); said != "ok" {
			v.breaks("%s: %s", name, said)
		}
	}
	if v.Early > 0 {
		v.breaks("%d attempts started before their time", v.Early)
	}
	operations := map[string]*operation{}
	found := map[string]bool{}
	for t, lies := range a.seen {
		c, err := s.Case(ctx, t.tenant, t.id)
		if errors.Is(err, postadjudication.ErrNotFound) {
			continue // refused whenever it was asked for
		}
		if err != nil {
			return nil, err
		}
		if err := v.hear(ctx, s, c, lies, operations); err != nil {
			return nil, err
		}
		for _, r := range c.Runs {
			found[r.Run.String()] = true
			v.place(r)
		}
	}
	for run, ad := range a.runs {
		if !found[run] {
			v.breaks("run %s of %s was accepted and does not exist", run, ad.TransactionReceiptID)
		}
	}
	v.compare(escrow, operations)
	return v, v.others(ctx, s, a)
}

// others looks for the forks and the tasks that move no money.
func (v *verdict) others(ctx context.Context, s *postadjudication.Service, a *accepted) error {
	for run := range a.more {
		id, err := receipts.ParseRunID(run)
		if err != nil {
			return err
		}
		r, err := s.Status(ctx, tenant, id)
		switch {
		case errors.Is(err, postadjudication.ErrNotFound):
			v.breaks("run %s was accepted and does not exist", run)
		case err != nil:
			return err
		case r.State.Live():
			v.breaks("run %s is still %s", run, r.State)
		}
	}
	return nil
}

// place counts a run where it is.
func (v *verdict) place(r postadjudication.Status) {
	v.Runs++
	place := string(r.State)
	if r.State == background.DeadLettered {
		place = "letter " + string(r.Letter)
	}
	v.Places[place]++
	if r.State.Live() {
		v.breaks("run %s is still %s", r.Run, r.State)
	}
}

// operation is what the receipts say was moved under an operation key.
type operation struct {
	moved int64
	open  bool // a run of it is unknown, and says so
	lies  bool // its executor states other sums than the escrow service
}

func (v *verdict) hear(ctx context.Context, s *postadjudication.Service, c postadjudication.CaseStatus, lies bool, operations map[string]*operation) error {
	keys := map[background.RunID]*operation{}
	for after, more := int64(0), true; more; {
		const page = 500
		trail, err := s.Receipts(ctx, c.Tenant, c.Case, after, page)
		if err != nil {
			return err
		}
		for _, r := range trail {
			p, err := r.Payload()
			if err != nil {
				return err
			}
			v.receipt(r, p, keys, operations)
		}
		after, more = after+int64(len(trail)), len(trail) == page
	}
	for _, r := range c.Runs {
		if o := keys[r.Run]; o != nil {
			o.lies, o.open = lies, o.open || r.Class == background.Unknown
		}
	}
	return nil
}

func (v *verdict) receipt(r receipts.Receipt, p receipts.Payload, keys map[background.RunID]*operation, operations map[string]*operation) {
	switch r.Subtype {
	case receipts.Submitted:
		if p.OperationKey == "" {
			return // of a plain family
		}
		o := operations[p.OperationKey]
		if o == nil {
			o = &operation{}
			operations[p.OperationKey] = o
		}
		keys[r.Run] = o
		return
	case receipts.AttemptInterrupted:
		v.Recovered++
	case receipts.AnsweredLate:
		v.Late++
	case receipts.OutOfBandChangeDetected:
		v.Touched[p.ReasonCode]++
	}
	if o := keys[r.Run]; o != nil {
		o.moved = max(o.moved, p.Moved)
	}
}

// compare holds the receipts against the escrow service's own ledger.
func (v *verdict) compare(escrow *fakeescrow.Service, operations map[string]*operation) {
	v.Calls, v.Doubles = escrow.Totals().Calls, escrow.DoubleEffects()
	if v.Doubles > 0 {
		v.breaks("the escrow service made %d effects too many", v.Doubles)
	}
	effects := escrow.Effects()
	v.Effects = len(effects)
	paid := map[string]int64{}
	for _, e := range effects {
		paid[e.OperationKey] += e.Moved.Minor
		if operations[e.OperationKey] == nil {
			v.breaks("the escrow service was paid for operation %.12s of %s, of which no receipt tells", e.OperationKey, e.TransactionReceiptID)
		}
	}
	for key, o := range operations {
		switch {
		case o.moved == paid[key], o.lies && o.moved == 2*paid[key]:
		case o.moved == 0 && o.open:
			v.Unproven++
		default:
			v.breaks("operation %.12s: the escrow service moved %d, the receipts say %d", key, paid[key], o.moved)
		}
	}
}
