package jobs

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// A lease belongs to the actor that fetched it: where there are keys, that is the principal of the key. The name of a
// worker proves nothing, since the worker makes it up.

// refuseOthers returns a refusal by refusal.GateNotTheHolder if another actor started the newest attempt of one of
// some runs, and records it in the case of each. The receipts of attempts say who, also after their leases.
func refuseOthers(ctx context.Context, j Jobs, asked string, runs ...background.RunID) (refused error) {
	if len(runs) == 0 {
		return nil
	}
	others, err := j.s.journal.Leases.StartedByOthers(ctx, j.tenant, j.actor, runs)
	if err != nil {
		return err
	}
	for _, id := range others {
		snap, err := j.s.applier.OwnRun(ctx, j.tenant, id)
		if err != nil {
			return err
		}
		refused = recordRefusal(ctx, j, asked, id, casework.RefusedBy(refusal.GateNotTheHolder, snap))
		if !errors.As(refused, new(*refusal.RefusedError)) {
			return refused
		}
	}
	return refused
}

// recordRefusal returns what refuses a worker. If that is a gate, the case gets a receipt.
func recordRefusal(ctx context.Context, j Jobs, asked string, run background.RunID, err error) error {
	return j.s.applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: asked, Run: run, Actor: j.actor}, err)
}
