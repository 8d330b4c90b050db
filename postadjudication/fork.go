package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// ForkRequest describes the fork of an open dead letter. The request to the escrow service
// can't be changed: other bytes under the same operation key would be another order.
type ForkRequest struct {
	Reason string              // required
	Policy *retrypolicy.Policy // nil: the letter's
	Queue  string              // a queue of the family, "<family>:<shard>"; empty: the letter's
}

// RefusedError says which gate refuses an action, and the current state.
type RefusedError struct {
	Gate      Gate
	Run       background.RunID
	Letter    background.LetterStatus
	ActiveRun background.RunID // the active run of the case
	// Because gives details, such as the escrow service's answer to a lookup; often empty.
	Because string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("postadjudication: refused by %s: %s: run %s", e.Gate, e.Gate.Meaning(), e.Run)
	if e.Letter != background.NoLetter {
		s += ", letter is " + string(e.Letter)
	}
	if e.Because != "" {
		s += "; " + e.Because
	}
	if e.ActiveRun != e.Run {
		s += "; the active run of the case is " + e.ActiveRun.String()
	}
	return s
}

// Fork retries an open dead letter as a new run of the same case with a fresh budget. The fork
// is committed when it returns. A letter has at most one fork: later calls are refused and the
// error names the active run.
//
// Errors:
//   - *RefusedError: a gate refuses the fork
//   - ErrNotFound: the tenant has no such letter, or it was purged
//   - *FieldError: invalid input
func (l Letters) Fork(ctx context.Context, id background.RunID, q ForkRequest) (_ Submitted, err error) {
	if err := errors.Join(l.checkActor(q.Reason), q.validate()); err != nil {
		return Submitted{}, err
	}
	defer func() { err = l.s.recordGateRefusal(ctx, actionRequest{"fork", id, l.actor, q.Reason}, err) }()
	k := forking{family: l.s.settlements, actor: l.actor, reason: q.Reason, policy: q.Policy, queue: q.Queue, queues: l.s.manager.Queues, run: background.RunID(newID()), at: l.s.now()}
	_, ch, err := l.s.cases.apply(ctx, l.tenant, id, k.decide)
	if err != nil {
		return Submitted{}, err
	}
	out, err := l.s.submitted(&journal.Snapshot{Case: ch.After.Case, Run: *ch.NewRun}, nil)
	l.s.notifyCreated(ctx, out)
	return out, err
}

func (q ForkRequest) validate() error {
	if q.Policy != nil {
		return validatePolicy(*q.Policy)
	}
	return nil
}

// requireText refuses an empty text and one that is not plain text of at most limit bytes.
func requireText(field, text string, limit int) error {
	if strings.TrimSpace(text) == "" || len(text) > limit || !isPlainText(text) {
		return &FieldError{Field: field, Problem: fmt.Sprintf("must be 1 to %d bytes of plain text", limit)}
	}
	return nil
}

// requireIdentifier is requireText for an identifier. It also refuses a secret, since
// identifiers are stored unredacted.
func requireIdentifier(field, text string, limit int) error {
	if err := requireText(field, text, limit); err != nil {
		return err
	}
	return rejectSecret(field, text)
}

// ownRun reads a run of a tenant, or returns ErrNotFound.
func (s *Service) ownRun(ctx context.Context, tenant string, id background.RunID) (journal.Snapshot, error) {
	seen, err := s.journal.Cases.Snapshot(ctx, id)
	return seen, ownedBy(tenant, seen, err)
}

// ownedBy returns the error of a read of a run, but ErrNotFound if it is not the tenant's. Nobody
// learns of a run of another tenant that it can't be read.
func ownedBy(tenant string, seen journal.Snapshot, err error) error {
	if (err == nil || errors.Is(err, ErrUnreadable)) && (tenant == "" || seen.Run.Tenant != tenant) {
		return ErrNotFound
	}
	return err
}

// Retry retries a job, named by any run of its lineage, as Open Job Spec defines it: externally
// the job keeps its id and history and starts again at attempt 0 with its policy. Internally it
// is Fork of the newest run, with all its gates: Lineage returns that run, and Status shows the
// successor of each older one. Of several concurrent calls one succeeds; the others are
// refused, and the error names the active run.
func (l Letters) Retry(ctx context.Context, id background.RunID, reason string) (Submitted, error) {
	if err := l.checkActor(reason); err != nil {
		return Submitted{}, err
	}
	lineage, err := l.s.Lineage(ctx, l.tenant, id)
	if err != nil {
		return Submitted{}, err
	}
	return l.Fork(ctx, lineage.Newest, ForkRequest{Reason: reason})
}
