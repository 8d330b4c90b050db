package casework

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// recordTampering records that the task of a run was changed in Redis, at most once for each
// delivery. The transition expects the head of the case from before the check that there is no
// such receipt. It returns ErrConflict if there is one, or if the run differs from the
// transition's.
func recordTampering(ctx context.Context, j *journal.Journal, tr *background.Transition) (background.Run, error) {
	for {
		seen, err := j.Cases.Snapshot(ctx, tr.Run.ID)
		if err != nil {
			return seen.Run, err
		}
		now, expected := seen.Run, tr.Run
		if !isSameDelivery(&now, &expected) {
			return now, background.ErrConflict
		}
		recorded, err := j.Receipts.HasDeliveryReceipt(ctx, now, tr.Subtype, DispatchReference(&now))
		if err != nil {
			return now, err
		}
		if recorded {
			return now, background.ErrConflict
		}
		after, err := j.CommitTransition(ctx, now.ID, tr.ID, func(s *journal.Snapshot) (journal.Change, error) {
			return tamperingChange(tr, s, &seen)
		})
		if !errors.Is(err, errCaseChanged) {
			return after.Run, err
		}
	}
}

// isSameDelivery reports whether a run is in the delivery in which it was expected.
func isSameDelivery(now, expected *background.Run) bool {
	return now.State == expected.State && now.Attempt == expected.Attempt && now.NotificationNumber == expected.NotificationNumber && now.Letter == expected.Letter
}

// tamperingChange returns the change that records tampering, or errCaseChanged if the case has changed since it was seen.
func tamperingChange(tr *background.Transition, s, seen *journal.Snapshot) (journal.Change, error) {
	if s.Case.Head != seen.Case.Head {
		return journal.Change{}, errCaseChanged
	}
	run := s.Run
	if err := tr.Apply(&run); err != nil {
		return journal.Change{}, err
	}
	return journal.Change{
		Transition: tr.ID, Before: s, After: &journal.Snapshot{Case: s.Case, Run: run},
		Drafts: []receipts.Draft{{Run: run.ID, Subtype: tr.Subtype, Actor: actorOf(tr), At: tr.At, Payload: receipts.Payload{
			DispatchReference: DispatchReference(&seen.Run), Queue: run.Queue, ReasonCode: tr.Reason, Worker: tr.Worker,
		}}},
	}, nil
}
