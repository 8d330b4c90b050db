package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// errMovedOn asks for the case to be read again.
var errMovedOn = errors.New("postadjudication: the case has moved on")

// recordNotice records that somebody touched the task of a run, one receipt for each
// bell at most: that there is none yet was read when the case's head was as the
// statement expects it. ErrLostGuard when there is one, or when the run is no longer
// as the move says.
func recordNotice(ctx context.Context, j *postgres.Journal, m background.Move) (background.Run, error) {
	for {
		seen, err := j.Snapshot(ctx, m.Run.ID)
		if err != nil {
			return seen.Run, err
		}
		now, then := seen.Run, m.Run
		if now.State != then.State || now.Attempt != then.Attempt || now.Bell != then.Bell || now.Letter != then.Letter {
			return now, background.ErrLostGuard
		}
		told, err := j.Told(ctx, now, m.Fact, dispatchReference(now))
		if err != nil {
			return now, err
		}
		if told {
			return now, background.ErrLostGuard
		}
		after, err := j.Apply(ctx, now.ID, m.ID, func(s *postgres.Snapshot) (postgres.Change, error) {
			if s.Case.Head != seen.Case.Head {
				return postgres.Change{}, errMovedOn
			}
			run, err := m.Apply(s.Run)
			if err != nil {
				return postgres.Change{}, err
			}
			return postgres.Change{
				Move: m.ID, Before: s, After: &postgres.Snapshot{Case: s.Case, Run: run},
				Drafts: []receipts.Draft{{Run: run.ID, Subtype: m.Fact, Actor: actorOf(&m), At: m.At, Payload: receipts.Payload{
					DispatchReference: dispatchReference(run), Queue: run.Queue, ReasonCode: m.Reason, Worker: m.Worker,
				}}},
			}, nil
		})
		if !errors.Is(err, errMovedOn) {
			return after.Run, err
		}
	}
}
