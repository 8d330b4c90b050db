package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
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
	if err := errors.Join(named("tenant", r.Tenant, 128), identified("actor", r.Actor, 128)); err != nil {
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
		reason := clean(q.reason, 1024)
		failed = s.noteOnce(ctx, seen.Run.Tenant, seen.Case.ID, receipts.Draft{Run: q.run, Actor: q.actor, At: s.now(), Payload: receipts.Payload{
			AskedFor: q.action, RefusedBy: rule, Reason: reason, ContentDigest: refusalDigest(q.action, rule, q.run.String(), q.actor, reason),
		}})
	}
	if failed != nil {
		return unrecordedRefusal(rule, failed)
	}
	return err
}

// notedSecondPerson is noted for a plan that an actor may not let run.
func (s *Service) notedSecondPerson(ctx context.Context, tenant, actor string, refused *SecondPersonError) error {
	action, plan := string(access.BulkRun), refused.Plan.ID.String()
	failed := s.noteOnce(ctx, tenant, receipts.CaseID{}, receipts.Draft{Actor: actor, At: s.now(), Payload: receipts.Payload{
		AskedFor: action, RefusedBy: refused.Code(), Bulk: plan, ContentDigest: refusalDigest(action, refused.Code(), plan, actor, callerOf(ctx).Key),
	}})
	if failed != nil {
		return unrecordedRefusal(refused.Code(), failed)
	}
	return refused
}

func unrecordedRefusal(rule string, failed error) error {
	return fmt.Errorf("postadjudication: a refusal (%s) could not be recorded: %w", rule, failed)
}

func refusalDigest(parts ...string) string {
	digest := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(digest[:])
}

// noteOnce leaves the receipt of a refusal in a case, or in the tenant's register of refusals
// when there is none, unless one of the same content was left the same day. It is a
// *TooManyRefusalsError when the caller was refused too often.
func (s *Service) noteOnce(ctx context.Context, tenant string, kase background.CaseID, draft receipts.Draft) error {
	since := draft.At.Truncate(day)
	if known, err := s.journal.RefusalNoted(ctx, tenant, kase, draft, since); known || err != nil {
		return err
	}
	if err := callerOf(ctx).mayBeRefused(); err != nil {
		return err
	}
	if kase.IsZero() {
		return s.journal.NoteAccessRefusalOnce(ctx, tenant, draft, since)
	}
	return s.journal.NoteRefusalOnce(ctx, tenant, kase, draft, since, true)
}
