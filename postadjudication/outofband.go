package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// errCaseChanged asks for the case to be read again.
var errCaseChanged = errors.New("postadjudication: the case has moved on")

// recordTampering records that somebody touched the task of a run, one receipt for each
// bell at most: that there is none yet was read when the case's head was as the
// statement expects it. ErrConflict when there is one, or when the run is no longer
// as the move says.
func recordTampering(ctx context.Context, j *postgres.Journal, m background.Transition) (background.Run, error) {
	for {
		seen, err := j.Snapshot(ctx, m.Run.ID)
		if err != nil {
			return seen.Run, err
		}
		now, expected := seen.Run, m.Run
		if now.State != expected.State || now.Attempt != expected.Attempt || now.NotificationNumber != expected.NotificationNumber || now.Letter != expected.Letter {
			return now, background.ErrConflict
		}
		recorded, err := j.HasDeliveryReceipt(ctx, now, m.Event, dispatchReference(now))
		if err != nil {
			return now, err
		}
		if recorded {
			return now, background.ErrConflict
		}
		after, err := j.Apply(ctx, now.ID, m.ID, func(s *postgres.Snapshot) (postgres.Change, error) {
			if s.Case.Head != seen.Case.Head {
				return postgres.Change{}, errCaseChanged
			}
			run, err := m.Apply(s.Run)
			if err != nil {
				return postgres.Change{}, err
			}
			return postgres.Change{
				Transition: m.ID, Before: s, After: &postgres.Snapshot{Case: s.Case, Run: run},
				Drafts: []receipts.Draft{{Run: run.ID, Subtype: m.Event, Actor: actorOf(&m), At: m.At, Payload: receipts.Payload{
					DispatchReference: dispatchReference(run), Queue: run.Queue, ReasonCode: m.Reason, Worker: m.Worker,
				}}},
			}, nil
		})
		if !errors.Is(err, errCaseChanged) {
			return after.Run, err
		}
	}
}
