package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// OperationLog names a trail of a tenant besides those of its cases.
type OperationLog string

// The operation logs.
const (
	OperationLogKeys     OperationLog = "keys"         // access keys created and revoked
	OperationLogRefusals OperationLog = "refusals"     // actions refused to access keys, if they named no case
	OperationLogBulks    OperationLog = "bulks"        // bulk plans created, started, paused, resumed, cancelled, finished or deleted
	OperationLogLists    OperationLog = "dead-letters" // rebuilds of the index of dead letters
	OperationLogWebhooks OperationLog = "webhooks"     // webhooks created, paused, resumed, rotated, replayed or deleted
)

// OperationLogEntry is one receipt of an operation log, or of a circuit breaker. Members that do
// not apply to the receipt are empty.
type OperationLogEntry struct {
	Sequence  int64            `json:"sequence"` // after of the next page
	Receipt   string           `json:"receipt_id"`
	Subtype   receipts.Subtype `json:"subtype"`
	Actor     string           `json:"actor"`
	At        time.Time        `json:"at"`
	Changes   string           `json:"changes,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Cause     string           `json:"reason_code,omitempty"` // of a circuit breaker
	Key       string           `json:"key,omitempty"`         // prefix of an access key
	AskedFor  string           `json:"asked_for,omitempty"`   // of a refusal: the action; of a bulk plan: what it does
	RefusedBy string           `json:"refused_by,omitempty"`
	Bulk      string           `json:"bulk,omitempty"`        // id of a plan
	Hash      string           `json:"hash,omitempty"`        // of a plan
	Incident  string           `json:"break_glass,omitempty"` // for which one person ran their own plan
	Target    string           `json:"target,omitempty"`
	Webhook   string           `json:"webhook,omitempty"` // id of a webhook
}

// History returns at most limit receipts of an operation log of a tenant in order,
// beginning after a sequence number. It returns none if nothing was ever recorded.
func (t TenantOperationLogs) History(ctx context.Context, log OperationLog, after int64, limit int) ([]OperationLogEntry, error) {
	return t.readOperationLog(ctx, string(log), after, limit)
}

// History returns the changes of a target's circuit breaker in order, as
// TenantOperationLogs.History does. For a tenant these are the changes of its own breaker, and
// when the breaker over all tenants paused its runs; for AllTenants, the changes of that one.
func (t TenantBreakers) History(ctx context.Context, target string, after int64, limit int) ([]OperationLogEntry, error) {
	if target == "" {
		return nil, &refusal.FieldError{Field: "target", Problem: "must be given"}
	}
	of, err := t.find(ctx, target)
	if err != nil {
		return nil, err
	}
	return t.readOperationLog(ctx, journal.BreakerSubjectPrefix+of.Family+":"+of.Name, after, limit)
}

func (o operator) readOperationLog(ctx context.Context, subject string, after int64, limit int) ([]OperationLogEntry, error) {
	switch {
	case o.tenant == "":
		return nil, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	case limit < 1:
		return nil, &refusal.FieldError{Field: "limit", Problem: "must be at least 1"}
	case after < 0:
		return nil, &refusal.FieldError{Field: "after", Problem: "must not be negative"}
	}
	caseID, found, err := o.s.journal.Operations.Case(ctx, o.tenant, subject)
	if err != nil || !found {
		return nil, err
	}
	trail, err := o.s.journal.Receipts.Trail(ctx, o.tenant, caseID, journal.TrailCursor{Case: caseID, Seq: after}, limit)
	if err != nil {
		return nil, err
	}
	out := make([]OperationLogEntry, len(trail))
	for i, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		out[i] = OperationLogEntry{
			Sequence: r.Seq, Receipt: r.ID(), Subtype: r.Subtype, Actor: r.Actor, At: r.At, Changes: p.Changes, Reason: p.Reason, Cause: p.ReasonCode,
			Key: p.Reference, AskedFor: p.AskedFor, RefusedBy: p.RefusedBy, Bulk: p.Bulk, Incident: p.BreakGlass, Target: p.Target,
		}
		if p.Webhook != "" {
			out[i].Webhook, out[i].Key = p.Reference, ""
		}
		if p.Bulk != "" {
			out[i].Hash = p.ContentDigest
		}
	}
	return out, nil
}
