package deadletter

import (
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// Letter is a dead letter in a list.
type Letter struct {
	Run         background.RunID        `json:"run_id"`
	Case        background.CaseID       `json:"case_id"`
	Family      string                  `json:"family"`
	Queue       string                  `json:"queue"`
	JobType     string                  `json:"job_type"`
	Transaction string                  `json:"transaction_receipt_id"`
	Submission  string                  `json:"submission_receipt_id,omitempty"`
	Escrow      string                  `json:"escrow_reference,omitempty"`
	Outcome     settlement.Outcome      `json:"outcome,omitempty"`
	Amount      *settlement.Money       `json:"amount,omitempty"`  // adjudicated
	AtRisk      *settlement.Money       `json:"at_risk,omitempty"` // reserved; open letters only
	Status      background.LetterStatus `json:"letter"`
	DeadAt      time.Time               `json:"dead_lettered_at"`
	Age         Duration                `json:"age"` // in whole seconds
	ReasonCode  string                  `json:"reason_code"`
	Class       background.Class        `json:"outcome_class"`
	Attempts    int                     `json:"attempts"`
	Error       *background.Failure     `json:"error,omitempty"`
	Signature   string                  `json:"signature"`    // equal for letters of the same cause
	Replays     int                     `json:"replay_count"` // forks of it and of its ancestors
	ReplayedBy  string                  `json:"replayed_by,omitempty"`
	LastSeenAt  time.Time               `json:"last_seen_at"` // time of the newest receipt of its case
	Held        bool                    `json:"held"`
	Reprocess   bool                    `json:"reprocess_eligible"`
	Review      bool                    `json:"manual_review_required"`
	ExpiresAt   *time.Time              `json:"expires_at,omitempty"` // retention purges it no earlier; nil: never
	Dispatch    string                  `json:"dispatch_reference"`
	CanFork     bool                    `json:"can_fork"`
	RefusedBy   refusal.Gate            `json:"refused_by,omitempty"` // why it can't be forked now
	casestatus.RuleReplays
}

// LetterOf returns a letter that a search found, as it is listed.
func (s *Searcher) LetterOf(l search.Letter) Letter {
	r, c := l.Run, l.Case
	out := Letter{
		Run: r.ID, Case: c.ID, Family: r.Family, Queue: r.Queue, JobType: l.JobType, Transaction: c.Subject, Submission: l.Submission, Escrow: l.Escrow,
		Outcome: l.Outcome, Status: r.Letter, DeadAt: r.DeadAt, Age: Duration(max(0, s.Now().Sub(r.DeadAt).Truncate(time.Second))),
		ReasonCode: r.Reason, Class: r.Class, Attempts: r.Attempt, Error: r.Failure, Signature: l.Signature, Replays: l.Replays, ReplayedBy: l.ReplayedBy,
		LastSeenAt: l.SeenAt, Held: l.Held, Reprocess: l.Eligible, Review: l.Review, Dispatch: casework.DispatchReference(&r),
		RefusedBy: s.Settlements.ForkGate(journal.Snapshot{Run: r, Case: c}, s.Now(), ""),
	}
	out.CanFork = out.RefusedBy == ""
	if l.Currency != "" {
		out.Amount = &settlement.Money{Minor: l.Amount, Currency: l.Currency}
		if r.Letter == background.LetterOpen {
			out.AtRisk = &settlement.Money{Minor: c.State.Reserved, Currency: l.Currency}
		}
	}
	if age, ends := s.RetentionOf(r.Family, r.Queue); ends && r.Letter == background.LetterOpen && !l.Held && (c.Kind != journal.KindSettlement || r.UnknownOpen == 0) {
		at := r.DeadAt.Add(age)
		out.ExpiresAt = &at
	}
	return out
}
