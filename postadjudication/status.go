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
	Run         background.RunID    `json:"run_id"`
	Case        background.CaseID   `json:"case_id"`
	Tenant      string              `json:"tenant"`
	Family      string              `json:"family"`
	RetryKey    string              `json:"retry_key"`
	Queue       string              `json:"queue"`
	State       background.State    `json:"state"`
	Letter      background.Letter   `json:"letter,omitempty"`
	Attempts    int                 `json:"attempt_count"`
	BudgetSpent int                 `json:"budget_spent"`
	Recoveries  int                 `json:"recoveries"`
	NextRetryAt *time.Time          `json:"next_retry_at,omitempty"`
	DeadAt      *time.Time          `json:"dead_lettered_at,omitempty"`
	Class       background.Class    `json:"outcome_class,omitempty"`
	ReasonCode  string              `json:"reason_code,omitempty"`
	Error       *background.Failure `json:"error,omitempty"`
	CancelAsked bool                `json:"cancel_asked,omitempty"`
	Policy      retrypolicy.Policy  `json:"policy"`
	Dispatch    string              `json:"dispatch_reference"`

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
	return s.related(ctx, snap)
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
	runs, err := s.statusesOf(ctx, tenant, all)
	return caseOf(all, runs), err
}

// Receipts reads the receipts of a tenant's case in order, after a sequence
// number (0 for the first), at most limit of them.
func (s *Service) Receipts(ctx context.Context, tenant string, kase background.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	return s.journal.Trail(ctx, tenant, kase, postgres.Place{Case: kase, Seq: after}, limit)
}

func statusOf(r background.Run) Status {
	out := Status{
		Run: r.ID, Case: r.Case, Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey, Queue: r.Queue, State: r.State, Letter: r.Letter,
		Attempts: r.Attempt, BudgetSpent: r.BudgetSpent, Recoveries: r.Recoveries, Class: r.Class, ReasonCode: r.Reason, Error: r.Failure,
		CancelAsked: r.CancelAsked, Policy: r.Policy, Dispatch: dispatchReference(r),
	}
	if r.State.Waiting() {
		out.NextRetryAt = &r.DueAt
	}
	if !r.DeadAt.IsZero() {
		out.DeadAt = &r.DeadAt
	}
	out.LetterOf, _ = handles(r)
	return out
}

// caseOf puts the runs of one case together; there is always at least one.
func caseOf(all []postgres.Snapshot, runs []Status) CaseStatus {
	c := all[0].Case
	return CaseStatus{
		Case: c.ID, Tenant: c.Tenant, Transaction: c.Subject, Submission: c.Submission, Escrow: c.Reference, Currency: c.Currency,
		Held: c.Held, UnknownOpen: all[0].Run.UnknownOpen, Receipts: c.Head.Seq, State: c.State, Runs: runs,
	}
}
