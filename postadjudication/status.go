package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// Status is a run as it is now, with the settlement of its case.
type Status struct {
	Run         background.RunID        `json:"run_id"`
	Case        background.CaseID       `json:"case_id"`
	Tenant      string                  `json:"tenant"`
	Family      string                  `json:"family"`
	RetryKey    string                  `json:"retry_key"`
	Queue       string                  `json:"queue"`
	State       background.State        `json:"state"`
	Letter      background.LetterStatus `json:"letter,omitempty"`
	Attempts    int                     `json:"attempt_count"`
	BudgetSpent int                     `json:"budget_spent"`
	Recoveries  int                     `json:"recoveries"`
	NextRetryAt *time.Time              `json:"next_retry_at,omitempty"`
	DeadAt      *time.Time              `json:"dead_lettered_at,omitempty"`
	Class       background.Class        `json:"outcome_class,omitempty"`
	ReasonCode  string                  `json:"reason_code,omitempty"`
	Error       *background.Failure     `json:"error,omitempty"`
	CancelAsked bool                    `json:"cancel_asked,omitempty"`
	// OutstandingCalls are the attempts that ended while their call went on and that have not
	// answered since. With MaxOutstandingCalls of them the run is not claimed.
	OutstandingCalls []int              `json:"outstanding_calls,omitempty"`
	WaitsFor         string             `json:"waits_for,omitempty"`     // of a run that waits: what keeps it from being called, as WaitsForBreaker
	WaitsBecause     string             `json:"waits_because,omitempty"` // the same for a person
	Ahead            int                `json:"ahead,omitempty"`         // of WaitsForTurn: runs of its queue that were due before it, at most 10,000 counted
	Policy           retrypolicy.Policy `json:"policy"`
	Dispatch         string             `json:"dispatch_reference"`
	PausedBy         []Breaker          `json:"paused_by,omitempty"` // circuit breakers that keep it from being claimed

	// Where the run comes from and where it went.

	Parents  []background.RunID `json:"parent_run_ids,omitempty"`   // what it is a fork of, the oldest first
	Forks    []background.RunID `json:"fork_run_ids,omitempty"`     // what was forked from it, and from that, in order
	Replays  int                `json:"replay_count"`               // how often its job was forked in all
	Handler  background.RunID   `json:"handler_run_id,omitzero"`    // the run that handles its letter
	LetterOf background.RunID   `json:"handles_letter_of,omitzero"` // the run whose letter it handles
	RuleReplays
}

// CaseStatus is everything about one transaction receipt.
type CaseStatus struct {
	Case        background.CaseID `json:"case_id"`
	Tenant      string            `json:"tenant"`
	Transaction string            `json:"transaction_receipt_id"`
	Submission  string            `json:"submission_receipt_id"`
	Escrow      string            `json:"escrow_reference"`
	Currency    string            `json:"currency"`
	Held        int64             `json:"held"`
	UnknownOpen int               `json:"unknown_open"`
	Receipts    int64             `json:"receipts"`
	Excess      int64             `json:"excess,omitempty"`          // paid beyond what was adjudicated
	Committed   int64             `json:"escrow_committed"`          // of the escrow, by all its cases
	Breached    int64             `json:"escrow_breached,omitempty"` // by how much the escrow has committed more than it holds
	settlement.State
	Runs []Status `json:"runs"` // oldest first
}

// Status tells how a run of a tenant is. ErrNotFound when the tenant has none such.
func (s *Service) Status(ctx context.Context, tenant string, id background.RunID) (Status, error) {
	snap, err := s.journal.Snapshot(ctx, id)
	if err != nil {
		return Status{}, err
	}
	if tenant == "" || snap.Run.Tenant != tenant {
		return Status{}, ErrNotFound
	}
	st, err := s.statusWithRelatives(ctx, snap)
	if err != nil {
		return Status{}, err
	}
	err = s.addWaits(ctx, &st, snap.Run)
	return st, err
}

// Case tells everything about a transaction of a tenant.
func (s *Service) Case(ctx context.Context, tenant, transaction string) (CaseStatus, error) {
	snap, err := s.journal.SubjectSnapshot(ctx, tenant, postgres.KindSettlement, transaction)
	if err != nil {
		return CaseStatus{}, err
	}
	all, err := s.journal.CaseRuns(ctx, tenant, snap.Case.ID)
	if err != nil {
		return CaseStatus{}, err
	}
	return s.caseStatus(ctx, tenant, all)
}

func (s *Service) caseStatus(ctx context.Context, tenant string, all []postgres.Snapshot) (CaseStatus, error) {
	runs, err := s.statusesOf(ctx, tenant, all)
	if err != nil {
		return CaseStatus{}, err
	}
	for i := range runs {
		if err := s.addWaits(ctx, &runs[i], all[i].Run); err != nil {
			return CaseStatus{}, err
		}
	}
	out := caseOf(all, runs)
	return out, s.addEscrow(ctx, &out)
}

// addEscrow adds what a case's rows do not show: its breaches, and its escrow at this moment.
func (s *Service) addEscrow(ctx context.Context, c *CaseStatus) error {
	if c.Escrow == "" {
		return nil // of a plain family
	}
	escrow, err := s.journal.FindEscrow(ctx, c.Tenant, c.Escrow)
	if err != nil {
		return err
	}
	c.Committed, c.Breached = escrow.Committed, max(escrow.Breached, escrow.Committed-escrow.Held)
	c.Excess, err = s.journal.CaseExcess(ctx, c.Tenant, c.Case)
	return err
}

// Receipts reads the receipts of a tenant's case in order, after a sequence
// number (0 for the first), at most limit of them.
func (s *Service) Receipts(ctx context.Context, tenant string, caseID background.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	return s.journal.Trail(ctx, tenant, caseID, postgres.TrailPosition{Case: caseID, Seq: after}, limit)
}

func statusOf(r background.Run) Status {
	out := Status{
		Run: r.ID, Case: r.Case, Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey, Queue: r.Queue, State: r.State, Letter: r.Letter,
		Attempts: r.Attempt, BudgetSpent: r.BudgetSpent, Recoveries: r.Recoveries, Class: r.Class, ReasonCode: r.Reason, Error: r.Failure,
		CancelAsked: r.CancelRequested, OutstandingCalls: r.OutstandingCalls, Policy: r.Policy, Dispatch: dispatchReference(r),
	}
	if r.State.Waiting() {
		out.NextRetryAt = &r.DueAt
	}
	if !r.DeadAt.IsZero() {
		out.DeadAt = &r.DeadAt
	}
	out.LetterOf, _ = handledRun(r)
	return out
}

// caseOf puts the runs of one case together; there is always at least one.
func caseOf(all []postgres.Snapshot, runs []Status) CaseStatus {
	c := all[0].Case
	return CaseStatus{
		Case: c.ID, Tenant: c.Tenant, Transaction: c.Subject, Submission: c.Submission, Escrow: c.Reference, Currency: c.Currency,
		Held: c.Held, UnknownOpen: all[0].Run.UnresolvedUnknowns, Receipts: c.Head.Seq, State: c.State, Runs: runs,
	}
}
