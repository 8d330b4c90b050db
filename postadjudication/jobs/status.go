package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Status is a job as its newest run is now.
type Status struct {
	ID               string
	Run              background.RunID
	Case             background.CaseID
	Parent           background.RunID // the run that the newest one retries; zero: it is the first
	Type             string
	Queue            string
	Priority         int
	State            background.State
	Letter           background.LetterStatus
	Attempt          int // attempts of the newest run, without those that were handed back
	DueAt            time.Time
	ExpiresAt        time.Time // zero: never
	DeadAt           time.Time // zero unless dead-lettered
	Policy           retrypolicy.Policy
	Payload          json.RawMessage
	Failure          *background.Failure // the last one of the newest run
	AwaitsActivation bool                // no attempt starts before it is activated
	// RetryDelay is the delay before the attempt that runs, in what Fetch returns, and before the next one in
	// what Nack and Find return; 0 if there is none.
	RetryDelay time.Duration

	// From the receipts: set by Find and by lists that say so.

	CreatedAt      time.Time // when it was enqueued
	EnqueuedAt     time.Time // when its newest run was
	StartedAt      time.Time // when its last attempt started; zero: never
	EndedAt        time.Time // when the newest run ended; zero: it has not
	EndedByAttempt bool      // its newest run ended with an attempt, and not by expiry or cancel
	Retried        bool      // the newest run is a retry
	Failures       []Failure // of all attempts of all runs, oldest first
	Output         json.RawMessage
	Replays        Replays // by rules

	// Of adjudications only.

	OutcomeUnknown  bool // whether money moved is unknown: a person has to find out
	CancelRequested bool // while a worker holds it
}

// Failure is how an attempt failed.
type Failure struct {
	Run       background.RunID
	Cycle     int // of the run among the runs of the job, from 1
	Attempt   int // of the run, without those handed back
	At        time.Time
	Type      string
	Code      string
	Message   string
	Details   json.RawMessage
	Backtrace string
	Final     bool // another attempt would not have helped
}

// statusOf returns the status of the job whose newest run is r, without what its receipts say.
func statusOf(r background.Run) Status {
	out := Status{
		ID: r.RetryKey, Run: r.ID, Case: r.Case, Parent: r.Parent, Type: r.Target, Queue: r.Queue, Priority: r.Priority, State: r.State, Letter: r.Letter,
		Attempt: r.Attempt - r.HandedBack, DueAt: r.DueAt, ExpiresAt: r.ExpiresAt, DeadAt: r.DeadAt, Policy: r.Policy, Payload: r.Payload, Failure: r.Failure,
		AwaitsActivation: r.AwaitsActivation(),
	}
	if isAdjudication(&r) {
		out.ID, out.Type, out.Attempt, out.Payload, out.Retried = r.ID.String(), AdjudicationType, r.Attempt, envelopeOf(&r, time.Time{}), !r.Parent.IsZero()
		out.OutcomeUnknown, out.CancelRequested = r.UnknownOpen > 0, r.State == background.Running && r.CancelRequested
	}
	if r.Terms != nil {
		out.EnqueuedAt = r.Terms.At
		if r.Parent.IsZero() {
			out.CreatedAt = r.Terms.At
		}
	}
	return out
}

// Find returns a job with its history. A job whose dead letter was deleted or purged is not found,
// and neither is one of another tenant, or one that the caller may not read. A job that has expired meanwhile is ended first.
//
// Errors: refusal.ErrNotFound; refusal.ErrUnreadable.
func (j Jobs) Find(ctx context.Context, id string) (Status, error) {
	for {
		snap, err := permitted(ctx, j, id)
		if err != nil {
			return Status{}, err
		}
		if now := j.s.now(); snap.Run.State.Waiting() && snap.Run.Expired(now) {
			after, err := j.s.applier.Fetcher.Expire(ctx, snap.Run)
			if err != nil {
				return Status{}, err
			}
			if !after.State.Waiting() {
				continue
			}
		}
		out := statusOf(snap.Run)
		line := []background.RunID(nil)
		if isAdjudication(&snap.Run) {
			out.ID = id
			if line, err = j.adjudications().lineage(ctx, &snap.Run); err != nil {
				return Status{}, err
			}
		}
		err = j.addHistory(ctx, &out, line)
		if n := len(out.Failures); n > 0 && out.State == background.Scheduled && out.DueAt.After(out.Failures[n-1].At) {
			out.RetryDelay = out.DueAt.Sub(out.Failures[n-1].At)
		}
		return out, err
	}
}

// permitted is snapshot for the caller of a request: it finds no job that the caller may not read.
func permitted(ctx context.Context, j Jobs, id string) (journal.Snapshot, error) {
	snap, err := j.snapshot(ctx, id)
	if err == nil {
		_, err = casework.PermittedRuns(ctx, j.s.journal, j.tenant, snap)
	}
	return snap, err
}

// snapshot reads the newest run of a job.
func (j Jobs) snapshot(ctx context.Context, id string) (journal.Snapshot, error) {
	snap, err := j.s.journal.Cases.SubjectSnapshot(ctx, j.tenant, journal.KindPlain, subject(id))
	switch {
	case errors.Is(err, background.ErrNotFound): // no other job has the id of an adjudication
		return j.adjudications().newest(ctx, id)
	case err == nil && snap.Run.Letter == background.LetterPurged:
		return snap, refusal.ErrNotFound
	}
	return snap, err
}

// historyPage is how many receipts are read at once.
const historyPage = 1000

// addHistory adds what the receipts of a job say. Of a case with other runs than those of the job, the
// runs of the job are given.
func (j Jobs) addHistory(ctx context.Context, s *Status, of []background.RunID) error {
	h := newHistory()
	for after := int64(0); ; {
		page, err := j.s.journal.Receipts.Trail(ctx, j.tenant, s.Case, journal.TrailCursor{Case: s.Case, Seq: after}, historyPage)
		if err != nil {
			return err
		}
		for _, r := range page {
			after = r.Seq
			if of != nil && !slices.Contains(of, r.Run) {
				continue
			}
			if err := h.add(s, r); err != nil {
				return err
			}
		}
		if len(page) < historyPage {
			break
		}
	}
	if err := j.addReplays(ctx, s); err != nil || s.State != background.Succeeded {
		return err
	}
	output, err := j.s.journal.Cases.Output(ctx, j.tenant, s.Run)
	s.Output = output
	return err
}

// history reads the history of a job off its receipts, in order.
type history struct {
	cycle      int // of the newest run seen
	cycles     map[background.RunID]int
	handedBack map[background.RunID]int
}

func newHistory() history {
	return history{cycles: map[background.RunID]int{}, handedBack: map[background.RunID]int{}}
}

// shown are the subtypes whose particulars a status shows. A list reads no others.
var shown = []receipts.Subtype{
	receipts.Submitted, receipts.AttemptInterrupted, receipts.RetryScheduled, receipts.AttemptSucceeded, receipts.Cancelled, receipts.Discarded, receipts.DeadLettered,
}

func (h *history) add(s *Status, r receipts.Receipt) error {
	newest := r.Run == s.Run
	if newest && r.Subtype == receipts.AttemptStarted {
		s.StartedAt = r.At
	}
	if !slices.Contains(shown, r.Subtype) {
		return nil
	}
	p, err := r.Known()
	if err != nil {
		return err
	}
	switch r.Subtype {
	case receipts.Submitted:
		h.cycle++
		h.cycles[r.Run] = h.cycle
		if p.ParentRun.IsZero() {
			s.CreatedAt = r.At
		}
		if newest {
			s.EnqueuedAt, s.Retried = r.At, !p.ParentRun.IsZero()
		}
	case receipts.AttemptInterrupted:
		if p.HandedBack {
			h.handedBack[r.Run]++
			return nil
		}
		h.addFailure(s, r, p)
	case receipts.RetryScheduled:
		h.addFailure(s, r, p)
	case receipts.AttemptSucceeded, receipts.Cancelled, receipts.Discarded, receipts.DeadLettered:
		if newest {
			s.EndedAt, s.EndedByAttempt = r.At, p.AttemptClass != ""
		}
		if r.Subtype != receipts.AttemptSucceeded {
			h.addFailure(s, r, p)
		}
	}
	return nil
}

func (h *history) addFailure(s *Status, r receipts.Receipt, p receipts.Payload) {
	if p.Error == (receipts.Failure{}) || p.AttemptClass == "" {
		return
	}
	cycle, seen := h.cycles[r.Run]
	if !seen { // its beginning was left out
		cycle = h.cycle
	}
	f := Failure{
		Run: r.Run, Cycle: cycle, Attempt: p.Attempt - h.handedBack[r.Run], At: r.At, Type: p.Error.Type, Code: p.Error.Code, Message: p.Error.Message,
		Backtrace: p.Error.Stack, Final: p.ReasonCode == background.ReasonFinal,
	}
	if p.Error.Details != "" {
		f.Details = json.RawMessage(p.Error.Details)
	}
	s.Failures = append(s.Failures, f)
}

// MadeBy reports whether a request made the job or a retry of it, as its receipts say.
func (j Jobs) MadeBy(ctx context.Context, of Status, request string) (bool, error) {
	run, err := j.s.letters.Statuses.RunOfRequest(ctx, j.tenant, of.Case, request)
	return !run.IsZero(), err
}
