package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/settlement"
)

// LetterFilter selects dead letters. Zero members select everything.
type LetterFilter = postgres.LetterFilter

// Letter is a dead letter as an operator sees it in a list.
type Letter struct {
	Run         background.RunID    `json:"run_id"`
	Case        background.CaseID   `json:"case_id"`
	Transaction string              `json:"transaction_receipt_id"`
	Escrow      string              `json:"escrow_reference,omitempty"`
	Outcome     settlement.Outcome  `json:"outcome,omitempty"`
	AtRisk      *settlement.Money   `json:"at_risk,omitempty"` // what stays reserved for it
	Standing    background.Letter   `json:"letter"`
	DeadAt      time.Time           `json:"dead_lettered_at"`
	ReasonCode  string              `json:"reason_code"`
	Class       background.Class    `json:"outcome_class"`
	Attempts    int                 `json:"attempts"`
	Error       *background.Failure `json:"error,omitempty"`
	CanFork     bool                `json:"can_fork"`
	RefusedBy   Gate                `json:"refused_by,omitempty"` // why it can't be forked now
}

// LetterCursor is a place in a list of letters; the zero cursor is its beginning.
type LetterCursor = postgres.LetterPlace

const maxLetters = 1000

// Letters lists dead letters of a tenant, newest death first, at most limit (1 to
// 1000) of them after a cursor. next is the cursor behind the last one; more says
// whether anything may follow.
func (s *Service) Letters(ctx context.Context, tenant string, f LetterFilter, after LetterCursor, limit int) (page []Letter, next LetterCursor, more bool, err error) {
	if limit < 1 || limit > maxLetters {
		return nil, after, false, &FieldError{Field: "limit", Problem: "must be 1 to 1000"}
	}
	found, err := s.journal.Letters(ctx, tenant, f, after, limit)
	if err != nil {
		return nil, after, false, err
	}
	for _, snap := range found {
		page = append(page, s.letterOf(snap))
		next = LetterCursor{DeadAt: snap.Run.DeadAt, Run: snap.Run.ID}
	}
	return page, next, len(found) == limit, nil
}

func (s *Service) letterOf(snap postgres.Snapshot) Letter {
	r, c := snap.Run, snap.Case
	out := Letter{
		Run: r.ID, Case: c.ID, Transaction: c.Subject, Escrow: c.Reference, Outcome: c.State.Adjudication, Standing: r.Letter,
		DeadAt: r.DeadAt, ReasonCode: r.Reason, Class: r.Class, Attempts: r.Attempt, Error: r.Failure,
		RefusedBy: s.settlements.gate(snap, s.now()),
	}
	out.CanFork = out.RefusedBy == ""
	if c.Currency != "" && r.Letter == background.LetterOpen {
		out.AtRisk = &settlement.Money{Minor: c.State.Reserved, Currency: c.Currency}
	}
	return out
}
