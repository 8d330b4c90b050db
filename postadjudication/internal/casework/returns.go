package casework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Return is a payment, or a part of it, that came back.
type Return struct {
	Run       background.RunID // that paid
	Amount    int64            // minor units
	Reference string           // identifies the return in its tenant
	At        time.Time        // when it came back; zero: not known
}

// Payments reads what a case has paid, by its receipts, at the head of a snapshot. It returns ErrReceiptsDiffer if
// the receipts do not give the settlement that is stored.
func (c *Applier) Payments(ctx context.Context, s *journal.Snapshot) (binding.Settlement, error) {
	return foldPayments(ctx, c.Journal, &s.Case)
}

func foldPayments(ctx context.Context, j *journal.Journal, c *journal.Case) (binding.Settlement, error) {
	_, trail, err := j.Cases.WithTrail(ctx, c.Tenant, c.ID)
	if err != nil {
		return binding.Settlement{}, err
	}
	folded, err := binding.FoldSettlement(trail[:min(int64(len(trail)), c.Head.Seq)])
	if err == nil && folded.State != c.State {
		err = errors.New("another settlement is stored")
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrReceiptsDiffer, err)
	}
	return folded, err
}

// ErrReceiptsDiffer says that the receipts of a case do not say what it has paid: an audit finds why.
var ErrReceiptsDiffer = errors.New("postadjudication: the receipts of the case do not give what is stored of it")

// RecordReturns records payments of a case that came back, in one commit. f is one of the case's runs. A return is
// a fact: no state of the case refuses it. Errors: *refusal.RefusedError with refusal.GateExceedsPaid if more came back
// than was paid, and with refusal.GateReferenceUsed if a reference is that of a recorded return; ErrLetterChanged
// if the case has changed since it was read.
func (c *Applier) RecordReturns(ctx context.Context, f journal.LetterRow, actor, reason string, came []Return, guard Guard) error {
	if f.Case.Kind != journal.KindSettlement {
		return RefusedBy(refusal.GateNotSettlement, f.Snapshot)
	}
	folded, err := c.Payments(ctx, &f.Snapshot)
	if err != nil {
		return err
	}
	return c.ApplyAsRead(ctx, f, guard.Letter(func(f journal.LetterRow) (journal.Change, error) {
		return returning(f, folded, actor, reason, came, c.Now())
	}))
}

// returning returns the change that records returns.
func returning(f journal.LetterRow, folded binding.Settlement, actor, reason string, came []Return, at time.Time) (journal.Change, error) {
	after := f.Snapshot
	effect := journal.ReturnedPayments{Tenant: f.Case.Tenant, Case: f.Case.ID}
	var drafts []receipts.Draft
	for i, r := range came {
		next, paid, err := folded.Return(r.Run, r.Amount)
		switch {
		case err != nil:
			return journal.Change{}, err
		case !paid:
			return journal.Change{}, RefusedBy(refusal.GateExceedsPaid, f.Snapshot)
		}
		folded, after.Case.State, effect.After = next, next.State, next.State.Returned
		effect.Returns = append(effect.Returns, journal.ReturnedPayment{Reference: r.Reference, Seq: f.Case.Head.Seq + 1 + int64(i), Run: r.Run, Amount: r.Amount})
		drafts = append(drafts, receipts.Draft{Run: r.Run, Subtype: receipts.Returned, Actor: actor, At: at, Payload: receipts.Payload{
			Reason: reason, Reference: r.Reference, Returned: r.Amount, ReturnedAt: r.At, Outcome: string(next.PaymentOf(r.Run).Outcome), Settlement: binding.SettlementSnapshot(next.State),
		}})
	}
	return journal.Change{Before: &f.Snapshot, After: &after, Drafts: drafts, SideEffect: effect}, nil
}
