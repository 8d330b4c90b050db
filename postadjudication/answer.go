package postadjudication

import (
	"context"
	"encoding/hex"

	"github.com/recourse-dev/recourse/receipts"
)

// completeReply completes what a submission is told by what only the receipts know: that it
// was accepted before a higher generation, or who cancelled it. A refusal by a case
// that has ended is in its receipts before it is told. Where it must not wait, a case
// that another transaction holds is Busy.
func (s *Service) completeReply(ctx context.Context, a *admission, out Submitted, wait bool) (Submitted, error) {
	switch out.Reply {
	case StaleGeneration:
		return s.addSuperseded(ctx, a, out)
	case Cancelled:
		return s.addCancellation(ctx, a, out)
	case CaseEnded:
		err := s.journal.RecordRefusalOnce(ctx, a.Tenant, out.Case, a.refusalReceipt(out.Reply), a.at.UTC().Truncate(day), wait)
		if reply, ok := replyOf(err); err != nil && ok {
			return Submitted{Reply: reply}, nil
		}
		return out, err
	}
	return out, nil
}

// addSuperseded finds the run that an adjudication of a lower generation made, if it
// was ever accepted: what was accepted stays so.
func (s *Service) addSuperseded(ctx context.Context, a *admission, out Submitted) (Submitted, error) {
	accepted, err := s.journal.CaseReceipts(ctx, a.Tenant, out.Case, receipts.Submitted)
	if err != nil {
		return Submitted{}, err
	}
	for _, r := range accepted {
		p, err := r.Payload()
		if err != nil {
			return Submitted{}, err
		}
		if p.ParentRun.IsZero() && p.Generation == a.Generation && p.ContentDigest == hex.EncodeToString(a.digest[:]) {
			out.Reply, out.Run = Superseded, r.Run
		}
	}
	if out.Reply != Superseded {
		return out, nil
	}
	made, err := s.journal.Snapshot(ctx, out.Run)
	if err != nil {
		return Submitted{}, err
	}
	out.State = made.Run.State
	return out, nil
}

// addCancellation tells who ended the run of an adjudication, and why.
func (s *Service) addCancellation(ctx context.Context, a *admission, out Submitted) (Submitted, error) {
	ends, err := s.journal.CaseReceipts(ctx, a.Tenant, out.Case, receipts.Cancelled, receipts.Reconciled, receipts.ReservationFreed)
	if err != nil {
		return Submitted{}, err
	}
	for _, r := range ends {
		p, err := r.Payload()
		if err != nil {
			return Submitted{}, err
		}
		if r.Run == out.Run && (r.Subtype != receipts.Reconciled || p.LetterClosed) {
			out.Actor, out.Reason = r.Actor, p.Reason
		}
	}
	return out, nil
}

// refusalReceipt is the receipt of a submission that was not accepted.
func (a *admission) refusalReceipt(r Reply) receipts.Draft {
	return receipts.Draft{Actor: a.actor(), At: a.at, Payload: receipts.Payload{
		AskedFor: "submit", RefusedBy: string(r), AdjudicationID: a.AdjudicationID, SubmissionReceiptID: a.SubmissionReceiptID,
		TransactionReceiptID: a.TransactionReceiptID, EscrowReference: a.EscrowReference, Outcome: string(a.Outcome), Generation: a.Generation,
		Amount: a.Amount.Minor, Held: a.Held.Minor, Currency: a.Amount.Currency, ContentDigest: hex.EncodeToString(a.digest[:]),
	}}
}
