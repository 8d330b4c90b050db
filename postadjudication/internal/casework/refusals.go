package casework

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Refusals records what was refused.
type Refusals struct {
	Journal *journal.Journal
	Now     func() time.Time
}

// RefusedBy returns the refusal of a run by a gate.
func RefusedBy(g refusal.Gate, s journal.Snapshot) *refusal.RefusedError {
	return &refusal.RefusedError{Gate: g, Run: s.Run.ID, Letter: s.Run.Letter, ActiveRun: s.Case.ActiveRun}
}

// refusedBecause is RefusedBy with more than the gate says.
func refusedBecause(g refusal.Gate, s journal.Snapshot, why string) *refusal.RefusedError {
	refused := RefusedBy(g, s)
	refused.Because = why
	return refused
}

// ActionRequest is an action that a person asked for on one run.
type ActionRequest struct {
	Action        string // as in receipts: "fork", "reconcile"
	Run           background.RunID
	Actor, Reason string
}

// RecordGateRefusal writes a receipt of a refusal by a gate and returns the refusal. Other errors
// leave no receipt. The same refusal leaves one receipt a day. If the receipt can't be written,
// RecordGateRefusal returns that error instead of the refusal; asking again is safe.
func (r *Refusals) RecordGateRefusal(ctx context.Context, q ActionRequest, err error) error {
	rule := ""
	var refused *refusal.RefusedError
	switch {
	case errors.As(err, &refused):
		rule = string(refused.Gate)
	case errors.Is(err, refusal.ErrReconcileFirst):
		rule = string(refusal.GateReconcileFirst)
	case errors.Is(err, refusal.ErrEnded):
		rule = "ended"
	default:
		return err
	}
	seen, failed := r.Journal.Cases.Snapshot(ctx, q.Run)
	if failed == nil {
		reason := validate.Clean(q.Reason, 1024)
		failed = r.RecordRefusalOnce(ctx, seen.Run.Tenant, seen.Case.ID, receipts.Draft{Run: q.Run, Actor: q.Actor, At: r.Now(), Payload: receipts.Payload{
			AskedFor: q.Action, RefusedBy: rule, Reason: reason, ContentDigest: RefusalDigest(q.Action, rule, q.Run.String(), q.Actor, reason),
		}})
	}
	if failed != nil {
		return RefusalNotRecorded(rule, failed)
	}
	return err
}

// RefusalNotRecorded returns the error of a refusal whose receipt could not be written.
func RefusalNotRecorded(rule string, failed error) error {
	return fmt.Errorf("postadjudication: a refusal (%s) could not be recorded: %w", rule, failed)
}

// RefusalDigest is equal for refusals that share one receipt a day.
func RefusalDigest(parts ...string) string {
	digest := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(digest[:])
}

// RecordRefusalOnce writes the receipt of a refusal to a case, or to the tenant's log of refusals
// if caseID is zero, unless the same receipt was written the same day. It returns a
// *TooManyRefusalsError if the caller was refused too often.
func (r *Refusals) RecordRefusalOnce(ctx context.Context, tenant string, caseID background.CaseID, draft receipts.Draft) error {
	since := draft.At.Truncate(validate.Day)
	if known, err := r.Journal.Operations.RefusalRecorded(ctx, tenant, caseID, draft, since); known || err != nil {
		return err
	}
	if err := CallerOf(ctx).checkRefusalLimit(); err != nil {
		return err
	}
	if caseID.IsZero() {
		return r.Journal.Operations.RecordAccessRefusalOnce(ctx, tenant, draft, since)
	}
	return r.Journal.Operations.RecordRefusalOnce(ctx, tenant, caseID, draft, since, true)
}
