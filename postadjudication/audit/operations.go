package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
)

// auditOperations checks a tenant's cases that have receipts but no run: their chains, and that
// the circuit breakers, rules, bulk plans and webhooks match the receipts.
func (s *auditor) auditOperations(ctx context.Context, a *Report, tenant string) error {
	cases, err := s.rows.OperationLogs(ctx, tenant)
	if err != nil {
		return err
	}
	for _, id := range cases {
		o, found, err := s.rows.OperationLog(ctx, tenant, id)
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
	return nil
}

// auditOperationLog checks one case that has receipts but no run.
func (s *auditor) auditOperationLog(ctx context.Context, a *Report, tenant string, o OperationLog) error {
	at := breakSubject{tenant: tenant, caseID: o.Case}
	a.auditChain(at, o.Head, o.Trail)
	a.Receipts += int64(len(o.Trail))
	switch {
	case o.Breaker != nil:
		a.auditBreaker(at, o)
	case o.Subject == stored.RuleLog:
		a.auditRules(at, o)
	case o.Subject == stored.WebhookLog:
		return s.auditWebhooks(ctx, a, at, o)
	case o.Subject == stored.BulkLog:
		return s.auditBulks(ctx, a, at, o)
	}
	return nil
}

// failUnreadableLog adds that the receipts of an operation log can't be read, so that its rows are not
// compared with them.
func (a *Report) failUnreadableLog(at breakSubject, o OperationLog, err error) {
	a.fail(InvariantFold, at, "the receipts of %s of %s can't be read: %v", o.Subject, at.tenant, err)
}

// States and causes of circuit breakers, as stored.
const (
	breakerClosed   = "closed"
	breakerOpen     = "open"
	breakerHalfOpen = "half_open"
	causeManual     = "by_hand"
)

// foldBreaker returns a circuit breaker as its receipts describe it.
func foldBreaker(rs []receipts.Receipt) (t Breaker, err error) {
	t.State = breakerClosed
	for _, r := range rs {
		p, err := r.Payload()
		if err != nil {
			return t, err
		}
		changes, ofAll := strings.CutSuffix(p.Changes, stored.OverAllTenants)
		if ofAll {
			t.RecordedOpen = r.Subtype == receipts.BreakerOpened
			continue
		}
		from, to, _ := strings.Cut(changes, " to ")
		t.State = to
		if from == breakerClosed {
			t.Openings, t.OpenedAt = t.Openings+1, r.At
		}
		t.Actor, t.Cause, t.Reason, t.At = r.Actor, p.ReasonCode, p.Reason, r.At
		t.Manual = t.State == breakerOpen && t.Cause == causeManual
	}
	return t, nil
}

// auditBreaker compares a circuit breaker with its receipts.
func (a *Report) auditBreaker(at breakSubject, o OperationLog) {
	recorded, err := foldBreaker(o.Trail)
	if err != nil {
		a.failUnreadableLog(at, o, err)
		return
	}
	var d differences
	b := o.Breaker
	d.compare("state", b.State, recorded.State)
	d.compare("by hand", b.Manual, recorded.Manual)
	d.compare("actor", b.Actor, recorded.Actor)
	d.compare("cause", b.Cause, recorded.Cause)
	d.compare("reason", b.Reason, recorded.Reason)
	d.compareTimes("time of the last move", b.At, recorded.At)
	d.compare("opening over all tenants", b.RecordedOpen, recorded.RecordedOpen)
	d.compare("number of openings", b.Openings, recorded.Openings)
	d.compareTimes("time of the last opening", b.OpenedAt, recorded.OpenedAt)
	d.fail(a, at, fmt.Sprintf("the circuit breaker of %s for %s", b.Target, at.tenant))
}

// foldRules derives a tenant's rules from the receipts of its rule log, by name.
func foldRules(rs []receipts.Receipt) (map[string]*Rule, error) {
	recorded := map[string]*Rule{}
	for _, r := range rs {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		name, changes, ok := strings.Cut(p.Changes, ": ")
		if !ok || r.Subtype != receipts.RuleChanged {
			continue
		}
		t := recorded[name]
		if t == nil {
			t = &Rule{}
			recorded[name] = t
		}
		var definition struct {
			Enabled bool `json:"enabled"`
		}
		if err := json.Unmarshal([]byte(p.Rule), &definition); err != nil {
			return nil, err
		}
		deleted := changes == binding.RuleDeleted
		*t = Rule{Name: name, Version: t.Version + 1, Enabled: definition.Enabled && !deleted, Deleted: deleted, Definition: p.Rule, Actor: r.Actor, Reason: p.Reason, At: r.At}
	}
	return recorded, nil
}

// auditRules compares a tenant's rules with the receipts of its rule log.
func (a *Report) auditRules(at breakSubject, o OperationLog) {
	recorded, err := foldRules(o.Trail)
	if err != nil {
		a.failUnreadableLog(at, o, err)
		return
	}
	for _, rule := range o.Rules {
		t := recorded[rule.Name]
		delete(recorded, rule.Name)
		if t == nil {
			a.fail(InvariantFold, at, "rule %s of %s was made, and no receipt says so", rule.Name, at.tenant)
			continue
		}
		compareRule(rule, *t).fail(a, at, fmt.Sprintf("rule %s of %s", rule.Name, at.tenant))
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		a.fail(InvariantFold, at, "rule %s of %s is in the receipts, but not stored", name, at.tenant)
	}
}

func compareRule(row, recorded Rule) (d differences) {
	d.compare("version", row.Version, recorded.Version)
	d.compare("enabled", row.Enabled, recorded.Enabled)
	d.compare("deleted", row.Deleted, recorded.Deleted)
	d.compare("definition", row.Definition, recorded.Definition)
	d.compare("actor", row.Actor, recorded.Actor)
	d.compare("reason", row.Reason, recorded.Reason)
	d.compareTimes("time", row.At, recorded.At)
	return d
}

// recordedBulk is a bulk plan as its receipts describe it.
type recordedBulk struct {
	BulkPlan
	hash      string
	forgotten bool // deleted before anybody started it
	receipt   string
}

func foldBulks(rs []receipts.Receipt) (map[string]*recordedBulk, error) {
	recorded := map[string]*recordedBulk{}
	for _, r := range rs {
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
		t.State, t.Action, t.hash, t.receipt = to, p.AskedFor, p.ContentDigest, r.ID()
		switch {
		case to == stored.BulkForgotten:
			t.forgotten = true
		case from == stored.BulkUnplanned:
			t.Actor, t.Reason, t.PlannedAt = r.Actor, p.Reason, r.At
		case from == stored.BulkPlanned && to == stored.BulkRunning:
			t.StartedBy, t.Incident, t.OnePerson = r.Actor, p.BreakGlass, p.People == 1
			t.SelfDeclared = p.SelfDeclared
			if t.Incident != "" {
				t.IncidentWhy = p.Reason
			}
		default:
			t.ChangedBy, t.ChangedWhy, t.ChangedAt = r.Actor, p.Reason, r.At
		}
	}
	return recorded, nil
}

// auditBulks compares a tenant's bulk plans with the receipts of its bulk log, and the hash of
// each plan with its items.
func (s *auditor) auditBulks(ctx context.Context, a *Report, at breakSubject, o OperationLog) error {
	recorded, err := foldBulks(o.Trail)
	if err != nil {
		a.failUnreadableLog(at, o, err)
		return nil
	}
	for _, b := range o.Plans {
		id := b.ID.String()
		t := recorded[id]
		delete(recorded, id)
		digest, forgotten, err := s.planDigest(ctx, b)
		if err != nil {
			return err
		}
		if forgotten {
			continue
		}
		var d differences
		d.compare("hash", hex.EncodeToString(b.Hash[:]), hex.EncodeToString(digest[:]))
		if t == nil {
			a.fail(InvariantFold, at, "bulk plan %s of %s is %s, and no receipt says so", id, at.tenant, b.State)
		} else {
			d = append(d, t.compare(b)...)
		}
		d.fail(a, at, fmt.Sprintf("bulk plan %s of %s", id, at.tenant))
	}
	for _, id := range slices.Sorted(maps.Keys(recorded)) {
		if t := recorded[id]; !t.forgotten {
			a.fail(InvariantFold, at, "bulk plan %s of %s is in receipt %s, but not stored", id, at.tenant, t.receipt)
		}
	}
	return nil
}

// planDigest computes the hash of a plan from what is stored. forgotten reports that the plan was deleted with its
// items after it was read, as one that nobody started is: the receipts read with it do not say so yet.
func (s *auditor) planDigest(ctx context.Context, b BulkPlan) (digest [32]byte, forgotten bool, err error) {
	d := binding.NewPlanDigest(binding.Plan{Tenant: b.Tenant, Action: b.Action, Request: b.Request, Actor: b.Actor, Reason: b.Reason, PlannedKey: b.PlannedKey})
	if err := s.rows.PlanItems(ctx, b.ID, func(i PlanItem) { d.Add(i.Run, i.Head, i.Amount, i.Currency) }); err != nil {
		return digest, false, err
	}
	if digest = d.Sum(); digest == b.Hash {
		return digest, false, nil
	}
	has, err := s.rows.HasPlan(ctx, b.ID)
	return digest, err == nil && !has, err
}

func (t *recordedBulk) compare(b BulkPlan) (d differences) {
	d.compare("state", b.State, t.State)
	d.compare("action", b.Action, t.Action)
	d.compare("hash", hex.EncodeToString(b.Hash[:]), t.hash)
	d.compare("planner", b.Actor, t.Actor)
	d.compare("reason", b.Reason, t.Reason)
	d.compareTimes("time of planning", b.PlannedAt, t.PlannedAt)
	d.compare("starter", b.StartedBy, t.StartedBy)
	d.compare("incident", b.Incident, t.Incident)
	d.compare("reason of the start for an incident", b.IncidentWhy, t.IncidentWhy)
	d.compare("start that took one person", b.OnePerson, t.OnePerson)
	d.compare("start by a name that no key proves", b.SelfDeclared, t.SelfDeclared)
	d.compare("who changed it last", b.ChangedBy, t.ChangedBy)
	d.compare("reason of the last change", b.ChangedWhy, t.ChangedWhy)
	d.compareTimes("time of the last change", b.ChangedAt, t.ChangedAt)
	return d
}
