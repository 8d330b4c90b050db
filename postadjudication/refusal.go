package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// AccessRefusal says who was refused what by a face, and by which rule.
type AccessRefusal struct {
	Tenant string
	Actor  string
	Action string
	Rule   string
	// What was to be acted on, if it was named: a run, or a case. They may be anything
	// that somebody wrote.
	Run  background.RunID
	Case background.CaseID
}

// NoteRefusal leaves a receipt of a refusal: in the case of the run or in the case
// that was named, if the tenant has it, else in the tenant's register of refusals.
func (s *Service) NoteRefusal(ctx context.Context, r AccessRefusal) error {
	if err := errors.Join(named("tenant", r.Tenant, 128), named("actor", r.Actor, 128)); err != nil {
		return err
	}
	kase, run := r.Case, r.Run
	if !run.IsZero() {
		seen, err := s.letter(ctx, r.Tenant, run)
		switch {
		case errors.Is(err, ErrNotFound):
			run = background.RunID{}
		case err != nil:
			return err
		default:
			kase = seen.Case.ID
		}
	}
	return s.journal.NoteRefusal(ctx, r.Tenant, kase, run, receipts.Draft{
		Actor: r.Actor, At: s.now(), Payload: receipts.Payload{AskedFor: clean(r.Action, 64), RefusedBy: clean(r.Rule, 64)},
	})
}

// request is what somebody asked of one run.
type request struct {
	action        string // as receipts name it: "fork", "reconcile"
	run           background.RunID
	actor, reason string
}

// noted leaves a receipt of a refusal by a gate, and returns the refusal; of another error
// it leaves none. Who asks for the same again the same day leaves no second one. A refusal
// that can't be recorded is not told: the error is why, and to ask again is safe.
func (s *Service) noted(ctx context.Context, q request, err error) error {
	rule := ""
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		rule = string(refused.Gate)
	case errors.Is(err, ErrReconcileFirst):
		rule = string(GateReconcileFirst)
	case errors.Is(err, ErrEnded):
		rule = "ended"
	default:
		return err
	}
	seen, failed := s.journal.Snapshot(ctx, q.run)
	if failed == nil {
		now, reason := s.now(), clean(q.reason, 1024)
		digest := sha256.Sum256([]byte(strings.Join([]string{q.action, rule, q.run.String(), q.actor, reason}, "\x00")))
		failed = s.journal.NoteRefusalOnce(ctx, seen.Run.Tenant, seen.Case.ID, receipts.Draft{Run: q.run, Actor: q.actor, At: now, Payload: receipts.Payload{
			AskedFor: q.action, RefusedBy: rule, Reason: reason, ContentDigest: hex.EncodeToString(digest[:]),
		}}, now.Truncate(day), true)
	}
	if failed != nil {
		return fmt.Errorf("postadjudication: a refusal (%s) could not be recorded: %w", rule, failed)
	}
	return err
}
