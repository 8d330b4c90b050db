package jobs

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Cancel cancels a job that has not ended. If a worker holds the job, the worker's answer is refused
// afterwards. Of an adjudication that a worker holds, Cancel only records a request: the adjudication is
// cancelled at the end of its attempt if that paid nothing, and Cancel returns a *ConflictError whose
// Status has CancelRequested set.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job has ended; background.ErrReconcileFirst for an
// adjudication of unknown outcome; *refusal.FieldError.
func (j Jobs) Cancel(ctx context.Context, id, reason string) (Status, error) {
	switch snap, err := j.adjudications().newest(ctx, id); {
	case err == nil:
		return j.adjudications().cancel(ctx, snap, reason)
	case !errors.Is(err, refusal.ErrNotFound):
		return Status{}, err
	}
	return j.transition(ctx, id, receipts.Cancelled, reason, func(r *background.Run) bool { return r.State.Live() }, onlyLiveCancelled)
}

const onlyLiveCancelled = "only a job that has not ended can be cancelled"

// Activate lets a job be fetched that was enqueued as pending. It does not find a job that the caller may not read.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job is not pending; *refusal.FieldError.
func (j Jobs) Activate(ctx context.Context, id string) (Status, error) {
	if _, err := permitted(ctx, j, id); err != nil {
		return Status{}, err
	}
	return j.transition(ctx, id, receipts.Activated, "activated", (*background.Run).AwaitsActivation, "only a pending job can be activated")
}

// transition makes a transition of a job that a person or a program asked for.
func (j Jobs) transition(ctx context.Context, id string, event receipts.Subtype, reason string, may func(*background.Run) bool, otherwise string) (Status, error) {
	if err := validate.Actor(j.actor, reason); err != nil {
		return Status{}, err
	}
	for transition := casework.NewID(); ; {
		snap, err := j.snapshot(ctx, id)
		switch {
		case err != nil:
			return Status{}, err
		case snap.Run.LastTransition == transition:
			return statusOf(snap.Run), nil // an earlier try is written
		case !may(&snap.Run):
			return Status{}, &ConflictError{Status: statusOf(snap.Run), Reason: otherwise}
		}
		tr := background.Transition{ID: transition, Run: snap.Run, Subtype: event, At: j.s.now(), Actor: j.actor, Reason: validate.Clean(reason, 1024)}
		after, err := j.s.applier.Recorder(Family).Record(ctx, tr)
		if errors.Is(err, background.ErrConflict) {
			continue
		}
		if err != nil {
			return Status{}, err
		}
		return statusOf(after), nil
	}
}
