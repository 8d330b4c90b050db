package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// verification is the result of verify: counts, and what is broken.
type verification struct {
	Accepted           int            `json:"accepted"`
	Decisions          int            `json:"decisions_answered_as_accepted"`
	Places             map[string]int `json:"places"` // where the runs are; they add up to Runs
	Runs               int            `json:"runs"`
	Cases              int            `json:"cases"`
	Receipts           int64          `json:"receipts"`
	Calls              int            `json:"calls_of_the_escrow_service"`
	Effects            int            `json:"effects"`
	Wrong              map[string]int `json:"wrong_effects"` // by why they must not be
	WrongSums          int            `json:"wrong_sums"`    // of cases and escrows
	Contradicted       int            `json:"contradictions_on_record"`
	Unrecorded         int            `json:"statements_not_on_record"`
	Lies               map[string]int `json:"lies_of_payers"` // by principal
	Invented           int            `json:"payments_that_liars_invented"`
	Lost               int            `json:"lost_decisions"`
	Unknown            int            `json:"cases_unknown_at_the_end"`
	HiddenReservations int            `json:"reservations_that_no_list_shows"`
	Gaps               int            `json:"waits_measured"` // by the escrow service's clock
	Early              int            `json:"early_attempts"`
	ClockFaultCalls    int            `json:"calls_of_workers_whose_clock_was_far_off"`
	Revived            int            `json:"cancelled_decisions_carried_out"`
	Recovered          int            `json:"attempts_interrupted"`
	Late               int            `json:"answered_late"`
	SettledMedian      float64        `json:"submitted_to_settled_median_s"`
	SettledP95         float64        `json:"submitted_to_settled_p95_s"`
	OutOfBand          map[string]int `json:"out_of_band"` // tampering that receipts report
	FalseReceipts      int            `json:"false_receipts"`
	Broken             []string       `json:"broken"`
}

func (v *verification) fail(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

// verifyInput is the input of verify: the service, the escrow service's ledger, the submissions, and
// what was done outside of Recourse.
type verifyInput struct {
	service      *postadjudication.Service
	escrows      ledgers
	accepted     *accepted
	statements   []statement     // under operation keys
	reports      []remote.Report // of remote workers
	tampering    *tamperLog
	clockFaults  []clockFault  // when a worker must call nobody
	clock        remote.Clock  // of the database
	maxUnknown   int           // cases whose money may be unknown at the end
	maxClockSkew time.Duration // how far the clocks of two workers may differ, for a wait that began in one and ended in the other
}

// caseTrail is a case with its receipts.
type caseTrail struct {
	casestatus.Case
	receipts []parsedReceipt
}

type parsedReceipt struct {
	receipts.Receipt
	p receipts.Payload
}

// verify compares the state of every submission with its receipts and with the escrow service's
// ledger. No run may be live.
func verify(ctx context.Context, w verifyInput) (*verification, error) {
	a := w.accepted
	v := &verification{
		Accepted: len(a.runs) + len(a.otherRuns), Decisions: len(a.decisions), Places: map[string]int{}, Wrong: map[string]int{}, OutOfBand: map[string]int{}, Lies: map[string]int{}, Broken: []string{},
	}
	report, err := audit.Run(ctx, w.service.AuditReader(), w.service.AuditQuery())
	if err != nil {
		return nil, err
	}
	v.Cases, v.Receipts = report.Cases, report.Receipts
	for _, name := range audit.Invariants {
		if result := report.Verdict(name); result != "ok" {
			v.fail("%s: %s", name, result)
		}
	}
	if report.EarlyAttempts > 0 {
		v.fail("%d attempts started before the time in their receipts", report.EarlyAttempts)
	}
	cases, err := w.cases(ctx)
	if err != nil {
		return nil, err
	}
	all := w.escrows.AllCalls()
	calls := callsByAttempt(all)
	v.checkClockFaults(all, w.clockFaults)
	operations := map[string]*operation{}
	found := map[string]bool{}
	for _, c := range cases {
		v.collectOperations(c, a.submitted[transaction{c.Tenant, c.Transaction}], operations)
		v.checkWaits(c, calls, w.maxClockSkew, w.clock)
		v.checkTampering(c, w.tampering)
		if err := v.checkReserved(ctx, w.service, c); err != nil {
			return nil, err
		}
		v.checkCancelledDecisions(c)
		v.checkCancelledRuns(c)
		for _, r := range c.Runs {
			found[r.Run.String()] = true
			v.countRun(r)
		}
	}
	for run, ad := range a.runs {
		if !found[run] {
			v.fail("run %s of %s was accepted and does not exist", run, ad.TransactionReceiptID)
		}
	}
	effects := w.escrows.Effects()
	invented := inventedPayments(w.reports, effects, cases)
	v.Invented, effects = len(invented), append(effects, invented...)
	v.checkDecisions(a.decisions, cases, effects)
	v.measureSettling(cases)
	v.Calls = w.escrows.Calls()
	v.checkEffects(w.escrows.Violations(), effects, cases)
	v.compareLedger(effects, operations)
	v.checkSums(effects, operations, cases)
	v.checkReturns(a.returns, cases)
	v.checkStatements(w.statements, cases)
	v.checkReports(w.reports, cases)
	v.checkUnknown(cases, w.maxUnknown)
	return v, v.checkOtherRuns(ctx, w.service, a)
}

// cases reads every case of a submission. A transaction whose submissions were all refused has
// none.
func (w verifyInput) cases(ctx context.Context) (map[transaction]*caseTrail, error) {
	out := map[transaction]*caseTrail{}
	for t := range w.accepted.submitted {
		c, err := w.service.Case(ctx, t.tenant, t.id)
		if errors.Is(err, refusal.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		of := &caseTrail{Case: c}
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
				of.receipts = append(of.receipts, parsedReceipt{r, p})
			}
			after, more = after+int64(len(rs)), len(rs) == page
		}
		out[t] = of
	}
	return out, nil
}

// checkOtherRuns checks the forks and the tasks that move no money.
func (v *verification) checkOtherRuns(ctx context.Context, s *postadjudication.Service, a *accepted) error {
	for run := range a.otherRuns {
		id, err := receipts.ParseRunID(run)
		if err != nil {
			return err
		}
		r, err := s.Status(ctx, tenant, id)
		switch {
		case errors.Is(err, refusal.ErrNotFound):
			v.fail("run %s was accepted and does not exist", run)
		case err != nil:
			return err
		case r.State.Live():
			v.fail("run %s is still %s", run, r.State)
		}
	}
	return nil
}

// countRun counts a run by its state.
func (v *verification) countRun(r casestatus.Status) {
	v.Runs++
	place := string(r.State)
	if r.State == background.DeadLettered {
		place = "letter " + string(r.Letter)
	}
	v.Places[place]++
	if r.State.Live() {
		v.fail("run %s is still %s", r.Run, r.State)
	}
}
