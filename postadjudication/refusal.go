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

// RecordRefusal leaves a receipt of a refusal: in the case of the run or in the case
// that was named, if the tenant has it, else in the tenant's register of refusals.
func (s *Service) RecordRefusal(ctx context.Context, r AccessRefusal) error {
	if err := errors.Join(requireText("tenant", r.Tenant, 128), requireIdentifier("actor", r.Actor, 128)); err != nil {
		return err
	}
	caseID, run := r.Case, r.Run
	if !run.IsZero() {
		seen, err := s.ownRun(ctx, r.Tenant, run)
		switch {
		case errors.Is(err, ErrNotFound):
			run = background.RunID{}
		case err != nil:
			return err
		default:
			caseID = seen.Case.ID
		}
	}
	return s.journal.RecordRefusal(ctx, r.Tenant, caseID, run, receipts.Draft{
		Actor: r.Actor, At: s.now(), Payload: receipts.Payload{AskedFor: cleanText(r.Action, 64), RefusedBy: cleanText(r.Rule, 64)},
	})
}

// actionRequest is what somebody asked of one run.
type actionRequest struct {
	action        string // as receipts name it: "fork", "reconcile"
	run           background.RunID
	actor, reason string
}

// recordGateRefusal leaves a receipt of a refusal by a gate, and returns the refusal; of another error
// it leaves none. Who asks for the same again the same day leaves no second one. A refusal
// that can't be recorded is not told: the error is why, and to ask again is safe.
func (s *Service) recordGateRefusal(ctx context.Context, q actionRequest, err error) error {
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
		reason := cleanText(q.reason, 1024)
		failed = s.recordRefusalOnce(ctx, seen.Run.Tenant, seen.Case.ID, receipts.Draft{Run: q.run, Actor: q.actor, At: s.now(), Payload: receipts.Payload{
			AskedFor: q.action, RefusedBy: rule, Reason: reason, ContentDigest: refusalDigest(q.action, rule, q.run.String(), q.actor, reason),
		}})
	}
	if failed != nil {
		return errRefusalNotRecorded(rule, failed)
	}
	return err
}

// recordSecondPersonRefusal is noted for a plan that an actor may not let run.
func (s *Service) recordSecondPersonRefusal(ctx context.Context, tenant, actor string, refused *SecondPersonError) error {
	action, plan := string(access.BulkRun), refused.Plan.ID.String()
	failed := s.recordRefusalOnce(ctx, tenant, receipts.CaseID{}, receipts.Draft{Actor: actor, At: s.now(), Payload: receipts.Payload{
		AskedFor: action, RefusedBy: refused.Code(), Bulk: plan, ContentDigest: refusalDigest(action, refused.Code(), plan, actor, callerOf(ctx).Key),
	}})
	if failed != nil {
		return errRefusalNotRecorded(refused.Code(), failed)
	}
	return refused
}

func errRefusalNotRecorded(rule string, failed error) error {
	return fmt.Errorf("postadjudication: a refusal (%s) could not be recorded: %w", rule, failed)
}

func refusalDigest(parts ...string) string {
	digest := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(digest[:])
}

// recordRefusalOnce leaves the receipt of a refusal in a case, or in the tenant's register of refusals
// when there is none, unless one of the same content was left the same day. It is a
// *TooManyRefusalsError when the caller was refused too often.
func (s *Service) recordRefusalOnce(ctx context.Context, tenant string, caseID background.CaseID, draft receipts.Draft) error {
	since := draft.At.Truncate(day)
	if known, err := s.journal.RefusalRecorded(ctx, tenant, caseID, draft, since); known || err != nil {
		return err
	}
	if err := callerOf(ctx).checkRefusalLimit(); err != nil {
		return err
	}
	if caseID.IsZero() {
		return s.journal.RecordAccessRefusalOnce(ctx, tenant, draft, since)
	}
	return s.journal.RecordRefusalOnce(ctx, tenant, caseID, draft, since, true)
}
