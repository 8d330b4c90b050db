package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// verdict is what must be true, and what of it is not.
type verdict struct {
	Accepted  int            `json:"accepted"`
	Decisions int            `json:"decisions_answered_as_accepted"`
	Places    map[string]int `json:"places"` // where the runs are; they add up to Runs
	Runs      int            `json:"runs"`
	Cases     int            `json:"cases"`
	Receipts  int64          `json:"receipts"`
	Calls     int            `json:"calls_of_the_escrow_service"`
	Effects   int            `json:"effects"`
	Wrong     map[string]int `json:"wrong_effects"` // by why they must not be
	Lost      int            `json:"lost_decisions"`
	Unknown   int            `json:"cases_unknown_at_the_end"`
	Hidden    int            `json:"reservations_that_no_list_shows"`
	Gaps      int            `json:"waits_measured"` // by the escrow service's clock
	Early     int            `json:"early_attempts"`
	Barred    int            `json:"calls_of_workers_whose_clock_was_far_off"`
	Revived   int            `json:"cancelled_decisions_carried_out"`
	Recovered int            `json:"attempts_interrupted"`
	Late      int            `json:"answered_late"`
	Touched   map[string]int `json:"out_of_band"` // what receipts say that somebody did to tasks
	False     int            `json:"false_receipts"`
	Broken    []string       `json:"broken"`
}

func (v *verdict) breaks(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

// world is what a judgement is made of: what Recourse says, what the escrow service
// knows, what was handed over, and what was done behind Recourse's back.
type world struct {
	service  *postadjudication.Service
	escrow   *fakeescrow.Service
	accepted *accepted
	deeds    *deeds
	barred   []span        // when a worker must call nobody
	unknowns int           // cases whose money may be unknown at the end
	clocks   time.Duration // how far the clocks of two workers may lie apart, where a wait went from one to the other
}

// trail is a case with its receipts.
type trail struct {
	postadjudication.CaseStatus
	receipts []told
}

type told struct {
	receipts.Receipt
	p receipts.Payload
}

// judge holds what Recourse says of everything that was handed over against its own
// receipts and against the escrow service's ledger. Nothing may be live any more.
func judge(ctx context.Context, w world) (*verdict, error) {
	a := w.accepted
	v := &verdict{
		Accepted: len(a.runs) + len(a.more), Decisions: len(a.decisions), Places: map[string]int{}, Wrong: map[string]int{}, Touched: map[string]int{}, Broken: []string{},
	}
	audit, err := w.service.Audit(ctx)
	if err != nil {
		return nil, err
	}
	v.Cases, v.Receipts = audit.Cases, audit.Receipts
	for _, name := range postadjudication.Invariants {
		if said := audit.Verdict(name); said != "ok" {
			v.breaks("%s: %s", name, said)
		}
	}
	if audit.EarlyAttempts > 0 {
		v.breaks("%d attempts started before the time that their receipts tell", audit.EarlyAttempts)
	}
	cases, err := w.cases(ctx)
	if err != nil {
		return nil, err
	}
	all := w.escrow.AllCalls()
	calls := callsByAttempt(all)
	v.refused(all, w.barred)
	operations := map[string]*operation{}
	found := map[string]bool{}
	for _, c := range cases {
		v.hear(c, a.seen[transaction{c.Tenant, c.Transaction}], operations)
		v.waited(c, calls, w.clocks)
		v.touched(c, w.deeds)
		if err := v.reserved(ctx, w.service, c); err != nil {
			return nil, err
		}
		v.revived(c)
		v.dropped(c)
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
	effects := w.escrow.Effects()
	v.decided(a.decisions, cases, effects)
	v.Calls = w.escrow.Totals().Calls
	v.paid(w.escrow.Wrongs(), effects, cases)
	v.compare(effects, operations)
	v.unknown(cases, w.unknowns)
	return v, v.others(ctx, w.service, a)
}

// cases reads every case that anything was ever handed over of. What was refused
// whenever it was asked for has none.
func (w world) cases(ctx context.Context) (map[transaction]*trail, error) {
	out := map[transaction]*trail{}
	for t := range w.accepted.seen {
		c, err := w.service.Case(ctx, t.tenant, t.id)
		if errors.Is(err, postadjudication.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		of := &trail{CaseStatus: c}
		const page = 500
		for after, more := int64(0), true; more; {
			rs, err := w.service.Receipts(ctx, c.Tenant, c.Case, after, page)
			if err != nil {
				return nil, err
			}
			for _, r := range rs {
				p, err := r.Payload()
				if err != nil {
					return nil, err
				}
				of.receipts = append(of.receipts, told{r, p})
			}
			after, more = after+int64(len(rs)), len(rs) == page
		}
		out[t] = of
	}
	return out, nil
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
