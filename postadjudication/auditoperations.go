package postadjudication

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
)

// auditOperations checks a tenant's cases that have receipts but no run: their chains, and that
// the circuit breakers, rules and bulk plans match the receipts.
func (s *Service) auditOperations(ctx context.Context, a *Audit, tenant string) error {
	cases, err := s.journal.Operations.Cases(ctx, tenant)
	if err != nil {
		return err
	}
	for _, id := range cases {
		o, found, err := s.journal.Operations.WithTrail(ctx, tenant, id)
		if err != nil {
			return err
		}
		if !found {
			return errCaseVanished
		}
		if err := s.auditOperationLog(ctx, a, tenant, o); err != nil {
			return err
		}
	}
	for _, check := range []struct {
		invariant string
		each      func(context.Context, string, func(postgres.Discrepancy)) error
	}{{InvariantFold, s.journal.Audit.EachOperationMismatch}, {InvariantFold, s.journal.Plans.EachMismatch}, {InvariantFold, s.journal.Audit.EachControlMismatch}} {
		if err := check.each(ctx, tenant, a.addFound(check.invariant, tenant)); err != nil {
			return err
		}
	}
	return nil
}

// auditOperationLog checks one case that has receipts but no run.
func (s *Service) auditOperationLog(ctx context.Context, a *Audit, tenant string, o postgres.Operations) error {
	at := breakSubject{tenant: tenant, caseID: o.Case}
	a.auditChain(at, o.Head, o.Trail)
	a.Receipts += int64(len(o.Trail))
	var err error
	switch {
	case o.Breaker != nil:
		err = a.auditBreaker(at, o)
	case o.Subject == string(postgres.RuleLog):
		err = a.auditRules(at, o)
	case o.Subject == string(postgres.BulkLog):
		err = s.auditBulks(ctx, a, at, o)
	}
	if err != nil {
		a.fail(InvariantFold, at, "the receipts of %s of %s can't be read: %v", o.Subject, tenant, err)
	}
	return nil
}

// overAllTenants is the suffix of Changes in receipts of a tenant's trail about the circuit
// breaker over all tenants.
const overAllTenants = ", over all tenants"

// olderBreakerStates maps the names of breaker states in receipts of older versions.
var olderBreakerStates = map[string]background.BreakerState{"released": background.BreakerClosed, "pulled": background.BreakerOpen, "easing": background.BreakerHalfOpen}

// recordedBreaker is a circuit breaker as its receipts describe it.
type recordedBreaker struct {
	background.Breaker
	openOverAll bool // the breaker over all tenants pauses the tenant's runs
	older       bool // recorded by an older version: Openings and OpenedAt are not comparable
}

func foldBreaker(trail []receipts.Receipt) (t recordedBreaker, err error) {
	t.State = background.BreakerClosed
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return t, err
		}
		changes, ofAll := strings.CutSuffix(p.Changes, overAllTenants)
		if ofAll {
			t.openOverAll = r.Subtype == receipts.BreakerOpened
			continue
		}
		from, to, _ := strings.Cut(changes, " to ")
		if state, known := olderBreakerStates[to]; known {
			t.older, t.State = true, state
			if state == background.BreakerOpen && p.ReasonCode != background.CauseManual {
				t.State = background.BreakerHalfOpen
			}
		} else {
			t.State = background.BreakerState(to)
		}
		if from == string(background.BreakerClosed) {
			t.Openings, t.OpenedAt = t.Openings+1, r.At
		}
		t.Actor, t.Cause, t.Reason, t.At = r.Actor, p.ReasonCode, p.Reason, r.At
		t.Manual = t.State == background.BreakerOpen && t.Cause == background.CauseManual
	}
	return t, nil
}

// auditBreaker compares a circuit breaker with its receipts.
func (a *Audit) auditBreaker(at breakSubject, o postgres.Operations) error {
	recorded, err := foldBreaker(o.Trail)
	if err != nil {
		return err
	}
	var d differences
	b := o.Breaker
	d.compare("state", b.State, recorded.State)
	d.compare("by hand", b.Manual, recorded.Manual)
	d.compare("actor", b.Actor, recorded.Actor)
	d.compare("cause", b.Cause, recorded.Cause)
	d.compare("reason", b.Reason, recorded.Reason)
	d.compareTimes("time of the last move", b.At, recorded.At)
	d.compare("opening over all tenants", b.RecordedOpen, recorded.openOverAll)
	if !recorded.older {
		d.compare("number of openings", b.Openings, recorded.Openings)
		d.compareTimes("time of the last opening", b.OpenedAt, recorded.OpenedAt)
	}
	d.fail(a, at, fmt.Sprintf("the circuit breaker of %s for %s", b.Name, at.tenant))
	return nil
}

// auditRules compares a tenant's rules with the receipts of its rule log.
func (a *Audit) auditRules(at breakSubject, o postgres.Operations) error {
	recorded := map[string]*postgres.Rule{}
	for _, r := range o.Trail {
		p, err := r.Payload()
		if err != nil {
			return err
		}
		name, changes, ok := strings.Cut(p.Changes, ": ")
		if !ok || r.Subtype != receipts.RuleChanged {
			continue
		}
		t := recorded[name]
		if t == nil {
			t = &postgres.Rule{}
			recorded[name] = t
		}
		var definition struct {
			Enabled bool `json:"enabled"`
		}
		if err := json.Unmarshal([]byte(p.Rule), &definition); err != nil {
			return err
		}
		deleted := changes == binding.RuleDeleted
		*t = postgres.Rule{Tenant: r.Tenant, Name: name, Version: t.Version + 1, Enabled: definition.Enabled && !deleted, Deleted: deleted, Definition: p.Rule, Actor: r.Actor, Reason: p.Reason, At: r.At}
	}
	for _, stored := range o.Rules {
		t := recorded[stored.Name]
		delete(recorded, stored.Name)
		if t == nil {
			a.fail(InvariantFold, at, "rule %s of %s was made, and no receipt says so", stored.Name, at.tenant)
			continue
		}
		compareRule(stored, *t).fail(a, at, fmt.Sprintf("rule %s of %s", stored.Name, at.tenant))
	}
	for _, name := range sortedKeys(recorded) {
		a.fail(InvariantFold, at, "rule %s of %s is in the receipts, but not stored", name, at.tenant)
	}
	return nil
}

func compareRule(stored, recorded postgres.Rule) (d differences) {
	d.compare("version", stored.Version, recorded.Version)
	d.compare("enabled", stored.Enabled, recorded.Enabled)
	d.compare("deleted", stored.Deleted, recorded.Deleted)
	d.compare("definition", stored.Definition, recorded.Definition)
	d.compare("actor", stored.Actor, recorded.Actor)
	d.compare("reason", stored.Reason, recorded.Reason)
	d.compareTimes("time", stored.At, recorded.At)
	return d
}

// recordedBulk is a bulk plan as its receipts describe it.
type recordedBulk struct {
	postgres.BulkPlan
	hash             string
	planned          bool // has a receipt of its planning; older versions wrote none
	forgottenReceipt bool // has a receipt that it was forgotten: nobody had started it
	receipt          string
}

func foldBulks(trail []receipts.Receipt) (map[string]*recordedBulk, error) {
	recorded := map[string]*recordedBulk{}
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		from, to, ok := strings.Cut(p.Changes, " to ")
		if r.Subtype != receipts.BulkChanged || !ok {
			continue
		}
		t := recorded[p.Bulk]
		if t == nil {
			t = &recordedBulk{}
			recorded[p.Bulk] = t
		}
		t.State, t.Action, t.hash, t.receipt = postgres.BulkState(to), p.AskedFor, p.ContentDigest, r.ID()
		switch {
		case to == postgres.BulkForgotten:
			t.forgottenReceipt = true
		case from == postgres.BulkUnplanned:
			t.planned, t.Actor, t.Reason, t.PlannedAt = true, r.Actor, p.Reason, r.At
		case from == string(BulkPlanned) && to == string(BulkRunning):
			t.StartedBy = r.Actor
		default:
			t.ChangedBy = r.Actor
		}
	}
	return recorded, nil
}

// auditBulks compares a tenant's bulk plans with the receipts of its bulk log, and the hash of
// each plan with its items.
func (s *Service) auditBulks(ctx context.Context, a *Audit, at breakSubject, o postgres.Operations) error {
	recorded, err := foldBulks(o.Trail)
	if err != nil {
		return err
	}
	for _, b := range o.BulkPlans {
		id := b.ID.String()
		t := recorded[id]
		delete(recorded, id)
		digest, err := s.storedDigest(ctx, b)
		if err != nil {
			return err
		}
		var d differences
		d.compare("hash", hex.EncodeToString(b.Hash[:]), hex.EncodeToString(digest[:]))
		if t == nil {
			if b.State != BulkPlanned {
				a.fail(InvariantFold, at, "bulk plan %s of %s is %s, and no receipt says so", id, at.tenant, b.State)
			}
		} else {
			d = append(d, t.compare(b)...)
		}
		d.fail(a, at, fmt.Sprintf("bulk plan %s of %s", id, at.tenant))
	}
	for _, id := range sortedKeys(recorded) {
		if t := recorded[id]; !t.forgotten() {
			a.fail(InvariantFold, at, "bulk plan %s of %s is in receipt %s, but not stored", id, at.tenant, t.receipt)
		}
	}
	return nil
}

// forgotten reports whether the plan may be missing: it was deleted before anybody started it.
// Older versions wrote no receipt of that.
func (t *recordedBulk) forgotten() bool {
	return t.forgottenReceipt || !t.planned && t.State == BulkCancelled && t.StartedBy == ""
}

func (t *recordedBulk) compare(b postgres.BulkPlan) (d differences) {
	d.compare("state", b.State, t.State)
	d.compare("action", b.Action, t.Action)
	d.compare("hash", hex.EncodeToString(b.Hash[:]), t.hash)
	if t.planned {
		d.compare("planner", b.Actor, t.Actor)
		d.compare("reason", b.Reason, t.Reason)
		d.compareTimes("time of planning", b.PlannedAt, t.PlannedAt)
	}
	d.compare("starter", b.StartedBy, t.StartedBy)
	d.compare("who changed it last", b.ChangedBy, t.ChangedBy)
	return d
}
