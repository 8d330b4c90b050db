package demo

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/receipts"
)

// Report is the result of a demonstration. Lines = Submitted + Deduplicated + Rejected, and
// Submitted is the sum of the places from Settled to Live.
type Report struct {
	Lines            int               `json:"lines"`
	Submitted        int               `json:"submitted"`    // accepted as new
	Deduplicated     int               `json:"deduplicated"` // accepted before
	Rejected         int               `json:"rejected"`     // bad lines, and adjudications that conflict with accepted ones
	Settled          int               `json:"settled"`
	Refunded         int               `json:"refunded"`
	PartiallySettled int               `json:"partially_settled"`
	DeadLettered     int               `json:"dead_lettered"`
	OpenLetters      int               `json:"open_letters"` // the part of DeadLettered that waits for a person
	Cancelled        int               `json:"cancelled"`
	Live             int               `json:"live"`
	Attempts         int               `json:"attempts"`
	RetriesScheduled int               `json:"retries_scheduled"`
	Interrupted      int               `json:"interrupted"`
	AnsweredLate     int               `json:"answered_late"`
	UnknownOpen      int               `json:"unknown_open"` // attempts for which it is unknown whether money moved
	EarlyAttempts    int               `json:"early_attempts"`
	DoubleEffects    int               `json:"double_effects"`
	Receipts         int64             `json:"receipts"`
	ChainsVerified   int               `json:"chains_verified"`
	FirstAttemptMS   int64             `json:"first_attempt_ms"` // since the start
	ElapsedMS        int64             `json:"elapsed_ms"`
	Invariants       map[string]string `json:"invariants"` // name -> "ok" or its first break

	replies    map[postadjudication.Reply]int
	problems   []intake.Problem
	badLines   int
	evidence   *evidence
	invariants []Invariant
}

// OK reports whether every invariant holds.
func (r *Report) OK() bool {
	for _, i := range r.invariants {
		if !i.ok() {
			return false
		}
	}
	return len(r.invariants) > 0
}

// Run submits the input, waits until all runs have ended, and checks the invariants.
func (d *Demo) Run(ctx context.Context) (*Report, error) {
	bar := screen.NewProgress(d.options.Progress, "submitting", -1)
	h, err := d.submitInput(ctx, bar)
	if err = errors.Join(err, bar.End()); err != nil {
		return nil, err
	}
	accepted := h.replies[postadjudication.Created]
	bar = screen.NewProgress(d.options.Progress, "executing", accepted)
	err = d.awaitSettled(ctx, accepted, bar.At)
	if err = errors.Join(err, bar.End()); err != nil {
		return nil, err
	}
	e, err := d.collect(ctx, h.transactions)
	if err != nil {
		return nil, err
	}
	audited, err := audit.Run(ctx, d.main.Service.AuditReader(), d.main.Service.AuditQuery())
	if err != nil {
		return nil, err
	}
	verdicts, err := d.checkInvariants(ctx, accepted, e, audited)
	if err != nil {
		return nil, err
	}
	return d.report(h, e, audited, verdicts), nil
}

func (d *Demo) report(h *submitResult, e *evidence, audited *audit.Report, verdicts []Invariant) *Report {
	at := e.places()
	r := &Report{
		Lines: h.lines, Submitted: h.replies[postadjudication.Created],
		Deduplicated: h.replies[postadjudication.Deduplicated] + h.replies[postadjudication.AlreadyExecuted] + h.replies[postadjudication.Superseded],
		Settled:      at[placeSettled], Refunded: at[placeRefunded], PartiallySettled: at[placePartial], DeadLettered: at[placeDeadLetter],
		OpenLetters: e.openLetters(), Cancelled: at[placeCancelled], Live: at[placeLive],
		Attempts: e.counts[receipts.AttemptStarted], RetriesScheduled: e.counts[receipts.RetryScheduled],
		Interrupted: e.counts[receipts.AttemptInterrupted], AnsweredLate: e.counts[receipts.AnsweredLate],
		UnknownOpen: e.unknownOpen, EarlyAttempts: audited.EarlyAttempts, DoubleEffects: d.main.EmbeddedEscrow.DoubleEffects(),
		Receipts: audited.Receipts, ChainsVerified: audited.Chains, Invariants: map[string]string{},
		replies: h.replies, problems: h.problems, badLines: h.badLines, evidence: e, invariants: verdicts,
	}
	r.Rejected = r.Lines - r.Submitted - r.Deduplicated
	if first := d.tracker.firstAttempt(); !first.IsZero() {
		r.FirstAttemptMS = first.Sub(d.began).Milliseconds()
	}
	r.ElapsedMS = time.Since(d.began).Milliseconds()
	for _, i := range verdicts {
		r.Invariants[i.Name] = i.Verdict
	}
	return r
}
