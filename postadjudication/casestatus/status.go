package casestatus

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// Reader reports what became of runs and cases.
type Reader struct {
	Journal *journal.Journal
	Applier *casework.Applier
}

// Status is a run as it is now, with the settlement of its case.
type Status struct {
	Run             background.RunID        `json:"run_id"`
	Case            background.CaseID       `json:"case_id"`
	Tenant          string                  `json:"tenant"`
	Family          string                  `json:"family"`
	RetryKey        string                  `json:"retry_key"`
	Queue           string                  `json:"queue"`
	State           background.State        `json:"state"`
	Letter          background.LetterStatus `json:"letter,omitempty"`
	Attempts        int                     `json:"attempt_count"`
	BudgetSpent     int                     `json:"budget_spent"`
	Recoveries      int                     `json:"recoveries"`
	NextRetryAt     *time.Time              `json:"next_retry_at,omitempty"`
	DeadAt          *time.Time              `json:"dead_lettered_at,omitempty"`
	Class           background.Class        `json:"outcome_class,omitempty"`
	ReasonCode      string                  `json:"reason_code,omitempty"`
	Error           *background.Failure     `json:"error,omitempty"`
	CancelRequested bool                    `json:"cancel_asked,omitempty"`
	// OutstandingCalls are the attempts that ended before their call returned, and whose call
	// has not returned since. With MaxOutstandingCalls of them the run is not claimed.
	OutstandingCalls []int              `json:"outstanding_calls,omitempty"`
	WaitsFor         string             `json:"waits_for,omitempty"`     // of a waiting run: what blocks its next attempt, such as WaitsForBreaker
	WaitsBecause     string             `json:"waits_because,omitempty"` // WaitsFor in words
	Ahead            int                `json:"ahead,omitempty"`         // with WaitsForTurn: runs of its queue that were due before it; counted up to 10,000
	Policy           retrypolicy.Policy `json:"policy"`
	Dispatch         string             `json:"dispatch_reference"`
	PausedBy         []Breaker          `json:"paused_by,omitempty"` // circuit breakers that block its claim

	// Ancestors, descendants and handlers of the run.

	Parents  []background.RunID `json:"parent_run_ids,omitempty"`   // its ancestors by fork, the oldest first
	Forks    []background.RunID `json:"fork_run_ids,omitempty"`     // its descendants by fork, in order
	Replays  int                `json:"replay_count"`               // number of forks in its lineage
	Handler  background.RunID   `json:"handler_run_id,omitzero"`    // the run that handles its letter
	LetterOf background.RunID   `json:"handles_letter_of,omitzero"` // the run whose letter this run handles
	RuleReplays
}

// Case is the state of one transaction's case, with all its runs.
type Case struct {
	Case        background.CaseID `json:"case_id"`
	Tenant      string            `json:"tenant"`
	Transaction string            `json:"transaction_receipt_id"`
	Submission  string            `json:"submission_receipt_id"`
	Escrow      string            `json:"escrow_reference"`
	Currency    string            `json:"currency"`
	Held        int64             `json:"held"`
	UnknownOpen int               `json:"unknown_open"`
	Receipts    int64             `json:"receipts"`
	Excess      int64             `json:"excess,omitempty"` // paid beyond the adjudicated amount
	// Contradictions counts answers and findings that state less than is on record of the case's payments, or another
	// reference. A person has to find out which is right.
	Contradictions int   `json:"contradictions,omitempty"`
	Committed      int64 `json:"escrow_committed"`          // of the escrow, by all its cases
	Breached       int64 `json:"escrow_breached,omitempty"` // by how much the escrow's commitments exceed what it holds
	settlement.State
	Runs []Status `json:"runs"` // oldest first
}

// Status returns a run of a tenant. Errors: refusal.ErrNotFound if the tenant has no such run, or the caller may not read it.
func (s *Reader) Status(ctx context.Context, tenant string, id background.RunID) (Status, error) {
	snap, err := s.Applier.OwnRun(ctx, tenant, id)
	if err != nil {
		return Status{}, err
	}
	if _, err := casework.PermittedRuns(ctx, s.Journal, tenant, snap); err != nil {
		return Status{}, err
	}
	st, err := s.statusWithRelatives(ctx, snap)
	if err != nil {
		return Status{}, err
	}
	err = s.addWaits(ctx, &st, snap.Run)
	return st, err
}

// Case returns the case of a tenant's transaction, with the runs that the caller may read. Errors: refusal.ErrNotFound if
// there is none; *refusal.FieldError if no transaction can have the id.
func (s *Reader) Case(ctx context.Context, tenant, transaction string) (Case, error) {
	if err := validate.KnownID("transaction_receipt_id", transaction, settlement.MaxIDBytes); err != nil {
		return Case{}, err
	}
	snap, err := s.Journal.Cases.SubjectSnapshot(ctx, tenant, journal.KindSettlement, transaction)
	if err != nil {
		return Case{}, err
	}
	all, err := s.Journal.Cases.Runs(ctx, tenant, snap.Case.ID)
	if err != nil {
		return Case{}, err
	}
	return s.caseStatus(ctx, tenant, all)
}

func (s *Reader) caseStatus(ctx context.Context, tenant string, all []journal.Snapshot) (Case, error) {
	all, err := casework.PermittedRuns(ctx, s.Journal, tenant, all...)
	if err != nil {
		return Case{}, err
	}
	runs, err := s.StatusesOf(ctx, tenant, all)
	if err != nil {
		return Case{}, err
	}
	for i := range runs {
		if err := s.addWaits(ctx, &runs[i], all[i].Run); err != nil {
			return Case{}, err
		}
	}
	out := CaseOf(all, runs)
	return out, s.AddEscrow(ctx, &out)
}

// AddEscrow adds what is not in a case's rows: its breaches, and its escrow's present sums.
func (s *Reader) AddEscrow(ctx context.Context, c *Case) error {
	if c.Escrow == "" {
		return nil // a plain family's case
	}
	escrow, err := s.Journal.Escrows.Find(ctx, c.Tenant, c.Escrow)
	if err != nil {
		return err
	}
	c.Committed, c.Breached = escrow.Committed, max(escrow.Breached, escrow.Committed-escrow.Held)
	if c.Excess, err = s.Journal.Receipts.Excess(ctx, c.Tenant, c.Case); err != nil {
		return err
	}
	c.Contradictions, err = s.Journal.Receipts.Contradictions(ctx, c.Tenant, c.Case)
	return err
}

// StatusOf returns the status of a run as its row has it, without relatives.
func StatusOf(r background.Run) Status {
	out := Status{
		Run: r.ID, Case: r.Case, Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey, Queue: r.Queue, State: r.State, Letter: r.Letter,
		Attempts: r.Attempt, BudgetSpent: r.BudgetSpent, Recoveries: r.Recoveries, Class: r.Class, ReasonCode: r.Reason, Error: r.Failure,
		CancelRequested: r.CancelRequested, OutstandingCalls: r.OutstandingCalls, Policy: r.Policy, Dispatch: casework.DispatchReference(&r),
	}
	if r.State.Waiting() {
		out.NextRetryAt = &r.DueAt
	}
	if !r.DeadAt.IsZero() {
		out.DeadAt = &r.DeadAt
	}
	out.LetterOf, _ = casework.LetterHandledBy(r)
	return out
}

// CaseOf combines the runs of one case. all must not be empty.
func CaseOf(all []journal.Snapshot, runs []Status) Case {
	c := all[0].Case
	return Case{
		Case: c.ID, Tenant: c.Tenant, Transaction: c.Subject, Submission: c.Submission, Escrow: c.Reference, Currency: c.Currency,
		Held: c.Held, UnknownOpen: all[0].Run.UnknownOpen, Receipts: c.Head.Seq, State: c.State, Runs: runs,
	}
}

// CaseByID returns the status of a tenant's case, with the runs that the caller may read. refusal.ErrNotFound if the
// tenant has no such case, or the case has no such runs.
func (s *Reader) CaseByID(ctx context.Context, tenant string, id background.CaseID) (Case, error) {
	if tenant == "" {
		return Case{}, refusal.ErrNotFound
	}
	all, err := s.Journal.Cases.Runs(ctx, tenant, id)
	if err != nil {
		return Case{}, err
	}
	return s.caseStatus(ctx, tenant, all)
}
