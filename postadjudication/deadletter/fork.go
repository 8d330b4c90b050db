package deadletter

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Fork describes the fork of an open dead letter. The request to the escrow service
// can't be changed: other bytes under the same operation key would be another order.
type Fork struct {
	Reason  string              // required
	Request string              // identifies the request that asks for the fork, for the receipt; empty: none
	Policy  *retrypolicy.Policy // nil: the letter's
	Queue   string              // a queue of the family, "<family>:<shard>", or any of a job; empty: the letter's
	// Payload is the envelope of a job, for a retry with changes; nil: the letter's. Fingerprint is what
	// the job is unique by then; nil: what it was unique by.
	Payload     []byte
	Fingerprint *[32]byte
}

// Forked is the fork of a dead letter, as it was committed.
type Forked struct {
	Run    background.RunID  `json:"run_id" format:"uuid"`
	Case   background.CaseID `json:"case_id" format:"uuid"`
	Parent background.RunID  `json:"parent_run_id" format:"uuid"` // the letter's
	State  background.State  `json:"state"`
}

// Fork commits a new run of the case of an open dead letter, with a fresh budget. The fork is
// committed when it returns. A letter has at most one fork: later calls are refused and the
// error names the active run.
//
// Errors:
//   - *refusal.RefusedError: a gate refuses the fork
//   - refusal.ErrNotFound: the tenant has no such letter, or it was purged
//   - refusal.ErrUnreadable: the letter or what its fork is decided by can't be read
//   - *refusal.TooManyRefusalsError: the key was refused too often
//   - *refusal.FieldError: invalid input
func (l Letters) Fork(ctx context.Context, id background.RunID, q Fork) (_ Forked, err error) {
	if err := errors.Join(validate.Actor(l.actor, q.Reason), q.validate()); err != nil {
		return Forked{}, err
	}
	defer func() {
		err = l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "fork", Run: id, Actor: l.actor, Reason: q.Reason}, err)
	}()
	fork, at := background.RunID(casework.NewID()), l.s.Now()
	_, ch, err := l.s.Applier.Apply(ctx, l.tenant, id, func(f journal.LetterRow) (journal.Change, error) {
		facts, err := l.s.Settlements.ReadForkFacts(ctx, at, f)
		if err != nil {
			return journal.Change{}, err
		}
		return casework.Forking{Facts: facts, Actor: l.actor, Reason: q.Reason, Request: q.Request, Policy: q.Policy, Queue: q.Queue, Payload: q.Payload, Fingerprint: q.Fingerprint, Queues: l.s.Applier.Manager.Queues, Run: fork}.Decide(f)
	})
	if err != nil {
		return Forked{}, err
	}
	l.s.Applier.NotifyRuns(ctx, ch.NewRun)
	return Forked{Run: ch.NewRun.ID, Case: ch.NewRun.Case, Parent: id, State: ch.NewRun.State}, nil
}

// ForkAttempts is how many attempts everybody who may fork may give a fork.
const ForkAttempts = 10

// MaxForkAttempts returns how many attempts a fork may have if who asks may not set policies: as
// many as the policy of new runs gives, or ForkAttempts if that is more.
func MaxForkAttempts(newRuns retrypolicy.Policy) int {
	return max(newRuns.Normalize().MaxRetryAttempts, ForkAttempts)
}

func (q Fork) validate() error {
	if q.Policy != nil {
		return validate.Policy(*q.Policy, true) // casework.Forking refuses to discard money
	}
	return nil
}

// Retry retries a job, named by any run of its lineage, as Open Job Spec defines it: externally
// the job keeps its id and history and starts again at attempt 0 with its policy. Internally it
// is Fork of the newest run, with all its gates: Lineage returns that run, and Status shows the
// successor of each older one. Of several concurrent calls one succeeds; the others are
// refused, and the error names the active run.
func (l Letters) Retry(ctx context.Context, id background.RunID, reason string) (Forked, error) {
	if err := validate.Actor(l.actor, reason); err != nil {
		return Forked{}, err
	}
	lineage, err := l.s.Statuses.Lineage(ctx, l.tenant, id)
	if err != nil {
		return Forked{}, err
	}
	return l.Fork(ctx, lineage.Newest, Fork{Reason: reason})
}
