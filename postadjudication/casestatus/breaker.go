package casestatus

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// Breaker is the circuit breaker of one escrow service or plain family, over all tenants or for
// one. Unless it is closed, accepted runs of that target are paused: they stay pending or
// scheduled.
type Breaker struct {
	Tenant string        `json:"tenant"` // AllTenants for all
	Family string        `json:"family"`
	Target string        `json:"target"`
	State  circuit.State `json:"state"`
	ByHand bool          `json:"by_hand"` // opened by a person; stays open until a person releases it
	Actor  string        `json:"actor"`   // of the last change
	Cause  string        `json:"reason_code"`
	Reason string        `json:"reason"`
	At     time.Time     `json:"at"`
	Since  *time.Time    `json:"open_since,omitempty"` // nil: it is closed
	Paused int           `json:"paused_runs"`          // as last counted; 1000 means 1000 or more. Not counted while ByHand
}

// BreakerOf returns a circuit breaker of the engine as callers see it.
func BreakerOf(b circuit.Breaker) Breaker {
	out := Breaker{
		Tenant: b.Tenant, Family: b.Family, Target: b.Name, State: b.State, ByHand: b.Manual, Actor: b.Actor, Cause: b.Cause, Reason: b.Reason, At: b.At,
	}
	if b.Tenant == "" {
		out.Tenant = journal.AllTenants
	}
	if b.Blocks() {
		out.Since, out.Paused = &b.OpenedAt, b.Paused
	}
	return out
}

// addPausingBreakers adds the circuit breakers that keep a run from being claimed to its
// status.
func (s *Reader) addPausingBreakers(ctx context.Context, st *Status, r background.Run) error {
	name, err := s.Applier.Settlements.BreakerName(ctx, r.Family, r.Target)
	if err != nil {
		return err
	}
	found, err := s.Journal.Breakers.TargetBreakers(ctx, circuit.Scope{Tenant: r.Tenant, Family: r.Family, Name: name})
	if queue := escrow.RemotePrefix + r.Queue; r.Remote && name != queue && err == nil { // of a job
		var ofQueue []circuit.Breaker
		ofQueue, err = s.Journal.Breakers.TargetBreakers(ctx, circuit.Scope{Tenant: r.Tenant, Family: casework.Family, Name: queue})
		found = append(found, ofQueue...)
	}
	for _, b := range found {
		st.PausedBy = append(st.PausedBy, BreakerOf(b))
		st.setWait(WaitsForBreaker, "the circuit breaker of %s is %s", b.Name, b.State)
	}
	return err
}
