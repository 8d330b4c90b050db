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

// AccessRefusal is a refusal by an API or command line: who was refused which action by which rule.
type AccessRefusal struct {
	Tenant string
	Actor  string
	Action string
	Rule   string
	// The run or case of the action, if it was named. Both are unchecked input: they may not
	// exist or be another tenant's.
	Run  background.RunID
	Case background.CaseID
}

// RecordRefusal writes a receipt of a refusal: to the case of Run or to Case if the tenant
// has it, else to the tenant's log of refusals. Errors: a *FieldError for bad input.
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
	return s.journal.Operations.RecordRefusal(ctx, r.Tenant, caseID, run, receipts.Draft{
		Actor: r.Actor, At: s.now(), Payload: receipts.Payload{AskedFor: cleanText(r.Action, 64), RefusedBy: cleanText(r.Rule, 64)},
	})
}

// actionRequest is an action that a person asked for on one run.
type actionRequest struct {
	action        string // as in receipts: "fork", "reconcile"
	run           background.RunID
	actor, reason string
}

// recordGateRefusal writes a receipt of a refusal by a gate and returns the refusal. Other errors
// leave no receipt. The same refusal leaves one receipt a day. If the receipt can't be written,
// recordGateRefusal returns that error instead of the refusal; asking again is safe.
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
	seen, failed := s.journal.Cases.Snapshot(ctx, q.run)
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

// recordSecondPersonRefusal writes a receipt of a plan that an actor may not start.
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

// recordRefusalOnce writes the receipt of a refusal to a case, or to the tenant's log of refusals
// if caseID is zero, unless the same receipt was written the same day. It returns a
// *TooManyRefusalsError if the caller was refused too often.
func (s *Service) recordRefusalOnce(ctx context.Context, tenant string, caseID background.CaseID, draft receipts.Draft) error {
	since := draft.At.Truncate(day)
	if known, err := s.journal.Operations.RefusalRecorded(ctx, tenant, caseID, draft, since); known || err != nil {
		return err
	}
	if err := callerOf(ctx).checkRefusalLimit(); err != nil {
		return err
	}
	if caseID.IsZero() {
		return s.journal.Operations.RecordAccessRefusalOnce(ctx, tenant, draft, since)
	}
	return s.journal.Operations.RecordRefusalOnce(ctx, tenant, caseID, draft, since, true)
}
