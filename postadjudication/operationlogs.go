package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// OperationLog names what a tenant has one trail of, beside those of its cases.
type OperationLog string

// The registers.
const (
	OperationLogKeys     OperationLog = "keys"         // access keys that were made and revoked
	OperationLogRefusals OperationLog = "refusals"     // what access keys were refused, where no case was named
	OperationLogBulks    OperationLog = "bulks"        // bulk plans that were made, started, paused, resumed, cancelled, done or forgotten
	OperationLogLists    OperationLog = "dead-letters" // the list of dead letters that was made anew
)

// OperationLogEntry is one receipt of a register, or of a circuit breaker. A member that its kind
// has nothing to say of is empty.
type OperationLogEntry struct {
	Sequence  int64            `json:"sequence"` // begin after it to go on
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
	Bulk      string           `json:"bulk,omitempty"` // id of a plan
	Hash      string           `json:"hash,omitempty"` // of a plan
	Target    string           `json:"target,omitempty"`
}

// OperationHistory reads a register of a tenant off its receipts, the first one first, after a
// sequence, at most limit of them. There is nothing where nothing was ever written.
func (s *Service) OperationHistory(ctx context.Context, tenant string, log OperationLog, after int64, limit int) ([]OperationLogEntry, error) {
	return s.readOperationLog(ctx, tenant, string(log), after, limit)
}

// BreakerHistory reads the moves of the circuit breaker of a target off their receipts, as
// History does: of a tenant's own trail, which also says when the one over all tenants paused
// its runs, or of AllTenants.
func (s *Service) BreakerHistory(ctx context.Context, tenant, target string, after int64, limit int) ([]OperationLogEntry, error) {
	if target == "" {
		return nil, &FieldError{Field: "target", Problem: "must be given"}
	}
	of, err := s.findBreaker(ctx, tenant, target)
	if err != nil {
		return nil, err
	}
	return s.readOperationLog(ctx, tenant, postgres.BreakerSubjectPrefix+of.Family+":"+of.Name, after, limit)
}

func (s *Service) readOperationLog(ctx context.Context, tenant, subject string, after int64, limit int) ([]OperationLogEntry, error) {
	switch {
	case tenant == "":
		return nil, &FieldError{Field: "tenant", Problem: "must be given"}
	case limit < 1:
		return nil, &FieldError{Field: "limit", Problem: "must be at least 1"}
	case after < 0:
		return nil, &FieldError{Field: "after", Problem: "must not be negative"}
	}
	caseID, found, err := s.journal.OperationsCase(ctx, tenant, subject)
	if err != nil || !found {
		return nil, err
	}
	trail, err := s.journal.Trail(ctx, tenant, caseID, postgres.TrailPosition{Case: caseID, Seq: after}, limit)
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
			Key: p.Reference, AskedFor: p.AskedFor, RefusedBy: p.RefusedBy, Bulk: p.Bulk, Target: p.Target,
		}
		if p.Bulk != "" {
			out[i].Hash = p.ContentDigest
		}
	}
	return out, nil
}
