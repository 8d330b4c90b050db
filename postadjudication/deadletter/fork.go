package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Fork describes the fork of an open dead letter. The request to the escrow service
// can't be changed: other bytes under the same operation key would be another order.
type Fork struct {
	Reason    string              // required
	RequestID string              // identifies the request that asks for the fork, in its receipt; a request makes one fork at most; empty: none
	Policy    *retrypolicy.Policy // nil: the letter's
	Queue     string              // a queue of the family, "<family>:<shard>", or any of a job; empty: the letter's, which an adjudication for remote workers keeps
	// Payload is another envelope of a job, JSON of at most MaxPayload bytes; nil: the letter's. That of other
	// letters can't be changed.
	Payload []byte
	// Fingerprint is what a unique job is unique by with the Payload; nil: the same as before.
	Fingerprint *[32]byte
}

// MaxPayload bounds the envelope of a job, in bytes.
const MaxPayload = 1<<20 + 64<<10

// Forked is the fork of a dead letter, as it was committed; as it is now if its request is repeated.
type Forked struct {
	Run    background.RunID  `json:"run_id" format:"uuid"`
	Case   background.CaseID `json:"case_id" format:"uuid"`
	Parent background.RunID  `json:"parent_run_id" format:"uuid"` // the letter's
	State  background.State  `json:"state"`
}

// Fork commits a new run of the case of an open dead letter, with a fresh budget. The fork is
// committed when it returns. A letter has at most one fork: later calls are refused and the
// error names the active run. A call with the RequestID that made the fork returns it again.
//
// Errors:
//   - *refusal.RefusedError: a gate refuses the fork
//   - refusal.ErrNotFound: the tenant has no such letter, or it was purged
//   - refusal.ErrUnreadable: the letter or what its fork is decided by can't be read
//   - *refusal.TooManyRefusalsError: the key was refused too often
//   - *refusal.FieldError: invalid input
//   - refusal.ErrUnrecordable: the store can't keep a value of the request; nothing was done
//   - background.ErrBusy: another transaction holds the case; nothing was done
//
// After any other error it is unknown whether the fork was made. A further call with the same RequestID
// returns it, or makes it.
func (l Letters) Fork(ctx context.Context, id background.RunID, q Fork) (Forked, error) {
	if err := errors.Join(validate.Actor(l.actor, q.Reason), q.validate()); err != nil {
		return Forked{}, err
	}
	if err := q.checkSecrets(ctx, l.s.Settlements.References, l.tenant); err != nil {
		return Forked{}, err
	}
	forked, err := l.commitFork(ctx, id, q)
	if err == nil {
		return forked, nil
	}
	var refused *refusal.RefusedError
	if q.RequestID == "" || !errors.As(err, &refused) {
		return Forked{}, l.recordForkRefusal(ctx, id, q, err)
	}
	seen, err := l.s.Applier.OwnRun(ctx, l.tenant, id)
	if err != nil {
		return Forked{}, err
	}
	if made, ok, err := l.forkOfRequest(ctx, seen.Case.ID, q.RequestID); err != nil || ok {
		return made, err
	}
	return Forked{}, l.recordForkRefusal(ctx, id, q, refused)
}

// recordForkRefusal records the refusal of a fork by a gate, and returns its error. Errors that are no gate's
// pass through.
func (l Letters) recordForkRefusal(ctx context.Context, id background.RunID, q Fork, err error) error {
	return l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "fork", Run: id, Actor: l.actor, Reason: q.Reason}, err)
}

// forkOfRequest returns the fork in a case that a request made before: an earlier handler of it was
// interrupted, or is slow.
func (l Letters) forkOfRequest(ctx context.Context, of background.CaseID, request string) (Forked, bool, error) {
	run, err := l.s.Statuses.RunOfRequest(ctx, l.tenant, of, request)
	if err != nil || run.IsZero() {
		return Forked{}, false, err
	}
	made, err := l.s.Applier.OwnRun(ctx, l.tenant, run)
	if err != nil {
		return Forked{}, false, err
	}
	return Forked{Run: run, Case: of, Parent: made.Run.Parent, State: made.Run.State}, true, nil
}

func (l Letters) commitFork(ctx context.Context, id background.RunID, q Fork) (Forked, error) {
	at := l.s.Now()
	newRunID := background.RunID(casework.NewIDAt(at))
	if q.Queue != "" {
		seen, err := l.s.Applier.OwnRun(ctx, l.tenant, id)
		if err == nil {
			err = l.s.Applier.AddForkQueue(ctx, &seen, q.Queue, at)
		}
		if err != nil {
			return Forked{}, err
		}
	}
	_, ch, err := l.s.Applier.Apply(ctx, l.tenant, id, func(letter journal.LetterRow) (journal.Change, error) {
		facts, err := l.s.Settlements.ReadForkFacts(ctx, at, letter)
		if err != nil {
			return journal.Change{}, err
		}
		return casework.Forking{Facts: facts, Actor: l.actor, Reason: q.Reason, RequestID: q.RequestID, Policy: q.Policy, Queue: q.Queue, Payload: q.Payload, Fingerprint: q.Fingerprint, Queues: l.s.Applier.Engine.Queues, Run: newRunID}.Decide(letter)
	})
	if err != nil {
		return Forked{}, err
	}
	l.s.Applier.NotifyRuns(ctx, ch.NewRun)
	return Forked{Run: ch.NewRun.ID, Case: ch.NewRun.Case, Parent: id, State: ch.NewRun.State}, nil
}

// ForkAttempts is how many attempts everybody who may fork may give a fork over /api/v1. Over /ojs the retry of a
// job may have any retry policy, as its client may give it one at enqueueing; an adjudication is retried there as it is.
const ForkAttempts = 10

// MaxForkAttempts returns how many attempts a fork may have if who asks may not set policies: as
// many as the policy of new runs gives, or ForkAttempts if that is more.
func MaxForkAttempts(newRuns retrypolicy.Policy) int {
	return max(newRuns.Normalize().MaxRetryAttempts, ForkAttempts)
}

// checkSecrets refuses another payload with a secret. It searches a long one in the tenant's turn.
func (q Fork) checkSecrets(ctx context.Context, policy *referencepolicy.Store, tenant string) (err error) {
	if waited := tenantlimit.InTurn(ctx, tenant, len(q.Payload), func() { err = policy.CheckPayload(ctx, tenant, q.Payload) }); waited != nil {
		return waited
	}
	return err
}

// validate checks what can be checked without the letter. casework.Forking checks the rest: it refuses to
// discard money, and the payload of what is no job.
func (q Fork) validate() error {
	var all []error
	if q.Policy != nil {
		all = append(all, validate.Policy(*q.Policy, true))
	}
	if q.Payload != nil && (len(q.Payload) > MaxPayload || !json.Valid(q.Payload)) {
		all = append(all, &refusal.FieldError{Field: "payload", Problem: fmt.Sprintf("must be JSON of at most %d bytes", MaxPayload)})
	}
	return errors.Join(all...)
}

// Retry forks the newest run of the lineage that id belongs to, so that a caller can keep using the id of the
// first run however often it is retried. The gates are those of Fork. Lineage returns the newest run, and
// Status shows the forks of each older one. Of several concurrent calls one succeeds. The others are refused,
// and their error names the active run.
//
// Errors: those of Fork. After one that leaves it unknown whether the fork was made, RetryForRequest says so.
func (l Letters) Retry(ctx context.Context, id background.RunID, reason string) (Forked, error) {
	return l.RetryForRequest(ctx, id, reason, "")
}

// RetryForRequest is Retry for a request as of Fork.RequestID. Repeated, it returns the fork of the lineage
// that the request made, whatever became of it.
func (l Letters) RetryForRequest(ctx context.Context, id background.RunID, reason, request string) (Forked, error) {
	if err := validate.Actor(l.actor, reason); err != nil {
		return Forked{}, err
	}
	// The lineage is read before the search for a fork by this request. A fork made meanwhile is
	// then of the newest run read here, and Fork answers with it or refuses.
	lineage, err := l.s.Statuses.Lineage(ctx, l.tenant, id)
	if err != nil {
		return Forked{}, err
	}
	if request != "" {
		if made, ok, err := l.forkOfRequest(ctx, lineage.Runs[0].Case, request); err != nil || ok {
			return made, err
		}
	}
	made, err := l.Fork(ctx, lineage.Newest, Fork{Reason: reason, RequestID: request})
	if errors.Is(err, refusal.ErrNotFound) && lineage.Newest != id { // the newest was purged; the caller asked about another, which exists
		if newest, unread := l.s.Applier.OwnRun(ctx, l.tenant, lineage.Newest); unread == nil {
			err = casework.RefusedBy(refusal.GateNotOpen, newest)
		}
	}
	return made, err
}
