package postadjudication

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// auditOperations checks the cases of a tenant that have receipts but no run: their
// chains, and that what they tell of, circuit breakers, rules and bulk plans, is as they say.
func (s *Service) auditOperations(ctx context.Context, a *Audit, tenant string) error {
	cases, err := s.journal.OperationsCases(ctx, tenant)
	if err != nil {
		return err
	}
	for _, id := range cases {
		o, found, err := s.journal.OperationsAtOnce(ctx, tenant, id)
		if err != nil {
			return err
		}
		if !found {
			return errGone
		}
		if err := s.auditRegister(ctx, a, tenant, o); err != nil {
			return err
		}
	}
	for _, check := range []struct {
		invariant string
		each      func(context.Context, string, func(postgres.Found)) error
	}{{InvariantFold, s.journal.EachUnkept}, {InvariantFold, s.journal.EachMiscounted}, {InvariantFold, s.journal.EachUndecided}} {
		if err := check.each(ctx, tenant, a.found(check.invariant, tenant)); err != nil {
			return err
		}
	}
	return nil
}

// auditRegister checks one case that has receipts but no run, with what they tell of.
func (s *Service) auditRegister(ctx context.Context, a *Audit, tenant string, o postgres.Operations) error {
	at := site{tenant: tenant, kase: o.Case}
	a.chain(at, o.Head, o.Trail)
	a.Receipts += int64(len(o.Trail))
	var err error
	switch {
	case o.Breaker != nil:
		err = a.breaker(at, o)
	case o.Subject == string(postgres.RuleRegister):
		err = a.rules(at, o)
	case o.Subject == string(postgres.BulkRegister):
		err = s.auditBulks(ctx, a, at, o)
	}
	if err != nil {
		a.fail(InvariantFold, at, "the receipts of %s of %s can't be read: %v", o.Subject, tenant, err)
	}
	return nil
}

// overAllTenants ends what a receipt in a tenant's trail says of the circuit breaker over
// all tenants.
const overAllTenants = ", over all tenants"

// olderBreakerStates are how programs before called the states of a circuit breaker.
var olderBreakerStates = map[string]background.BreakerState{"released": background.BreakerClosed, "pulled": background.BreakerOpen, "easing": background.BreakerHalfOpen}

// toldBreaker is a circuit breaker as its receipts tell it.
type toldBreaker struct {
	background.Breaker
	overAll bool // the one over all tenants pauses the tenant's runs
	older   bool // a program before this one told of it: that of its opening is not compared
}

func foldBreaker(trail []receipts.Receipt) (t toldBreaker, err error) {
	t.State = background.BreakerClosed
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return t, err
		}
		changes, ofAll := strings.CutSuffix(p.Changes, overAllTenants)
		if ofAll {
			t.overAll = r.Subtype == receipts.BrakePulled
			continue
		}
		from, to, _ := strings.Cut(changes, " to ")
		if state, known := olderBreakerStates[to]; known {
			t.older, t.State = true, state
			if state == background.BreakerOpen && p.ReasonCode != background.CauseByHand {
				t.State = background.BreakerHalfOpen
			}
		} else {
			t.State = background.BreakerState(to)
		}
		if from == string(background.BreakerClosed) {
			t.Opening, t.OpenedAt = t.Opening+1, r.At
		}
		t.Actor, t.Cause, t.Reason, t.At = r.Actor, p.ReasonCode, p.Reason, r.At
		t.ByHand = t.State == background.BreakerOpen && t.Cause == background.CauseByHand
	}
	return t, nil
}

// breaker compares a circuit breaker with its receipts.
func (a *Audit) breaker(at site, o postgres.Operations) error {
	told, err := foldBreaker(o.Trail)
	if err != nil {
		return err
	}
	var d differences
	b := o.Breaker
	d.compare("state", b.State, told.State)
	d.compare("by hand", b.ByHand, told.ByHand)
	d.compare("actor", b.Actor, told.Actor)
	d.compare("cause", b.Cause, told.Cause)
	d.compare("reason", b.Reason, told.Reason)
	d.times("time of the last move", b.At, told.At)
	d.compare("told of the one over all tenants", b.Told, told.overAll)
	if !told.older {
		d.compare("number of openings", b.Opening, told.Opening)
		d.times("time of the last opening", b.OpenedAt, told.OpenedAt)
	}
	d.fail(a, at, fmt.Sprintf("the circuit breaker of %s for %s", b.Name, at.tenant))
	return nil
}

// rules compares the rules of a tenant with the receipts of their register.
func (a *Audit) rules(at site, o postgres.Operations) error {
	told := map[string]*postgres.Rule{}
	for _, r := range o.Trail {
		p, err := r.Payload()
		if err != nil {
			return err
		}
		name, changes, ok := strings.Cut(p.Changes, ": ")
		if !ok || r.Subtype != receipts.RuleChanged {
			continue
		}
		t := told[name]
		if t == nil {
			t = &postgres.Rule{}
			told[name] = t
		}
		var said struct {
			Enabled bool `json:"enabled"`
		}
		if err := json.Unmarshal([]byte(p.Rule), &said); err != nil {
			return err
		}
		deleted := changes == ruleDeleted
		*t = postgres.Rule{Tenant: r.Tenant, Name: name, Version: t.Version + 1, Enabled: said.Enabled && !deleted, Deleted: deleted, Definition: p.Rule, Actor: r.Actor, Reason: p.Reason, At: r.At}
	}
	for _, stored := range o.Rules {
		t := told[stored.Name]
		delete(told, stored.Name)
		if t == nil {
			a.fail(InvariantFold, at, "rule %s of %s was made, and no receipt says so", stored.Name, at.tenant)
			continue
		}
		ruleDiffers(stored, *t).fail(a, at, fmt.Sprintf("rule %s of %s", stored.Name, at.tenant))
	}
	for _, name := range sortedKeys(told) {
		a.fail(InvariantFold, at, "rule %s of %s, of which receipts tell, is not there", name, at.tenant)
	}
	return nil
}

func ruleDiffers(stored, told postgres.Rule) (d differences) {
	d.compare("version", stored.Version, told.Version)
	d.compare("enabled", stored.Enabled, told.Enabled)
	d.compare("deleted", stored.Deleted, told.Deleted)
	d.compare("definition", stored.Definition, told.Definition)
	d.compare("actor", stored.Actor, told.Actor)
	d.compare("reason", stored.Reason, told.Reason)
	d.times("time", stored.At, told.At)
	return d
}

// toldBulk is a bulk plan as its receipts tell it.
type toldBulk struct {
	postgres.Bulk
	hash    string
	planned bool // a receipt tells that it was made; programs before left none
	gone    bool // nobody started it, and it was forgotten
	receipt string
}

func foldBulks(trail []receipts.Receipt) (map[string]*toldBulk, error) {
	told := map[string]*toldBulk{}
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		from, to, ok := strings.Cut(p.Changes, " to ")
		if r.Subtype != receipts.BulkChanged || !ok {
			continue
		}
		t := told[p.Bulk]
		if t == nil {
			t = &toldBulk{}
			told[p.Bulk] = t
		}
		t.State, t.Action, t.hash, t.receipt = postgres.BulkState(to), p.AskedFor, p.ContentDigest, r.ID()
		switch {
		case to == postgres.BulkForgotten:
			t.gone = true
		case from == postgres.BulkUnplanned:
			t.planned, t.Actor, t.Reason, t.PlannedAt = true, r.Actor, p.Reason, r.At
		case from == string(BulkPlanned) && to == string(BulkRunning):
			t.StartedBy = r.Actor
		default:
			t.MovedBy = r.Actor
		}
	}
	return told, nil
}

// auditBulks compares the bulk plans of a tenant with the receipts of their register, and
// the hash of each with its items.
func (s *Service) auditBulks(ctx context.Context, a *Audit, at site, o postgres.Operations) error {
	told, err := foldBulks(o.Trail)
	if err != nil {
		return err
	}
	for _, b := range o.Bulks {
		id := b.ID.String()
		t := told[id]
		delete(told, id)
		digest, err := s.digestOf(ctx, b)
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
			d = append(d, t.differs(b)...)
		}
		d.fail(a, at, fmt.Sprintf("bulk plan %s of %s", id, at.tenant))
	}
	for _, id := range sortedKeys(told) {
		if t := told[id]; !t.forgotten() {
			a.fail(InvariantFold, at, "bulk plan %s of %s, of which receipt %s tells, is not there", id, at.tenant, t.receipt)
		}
	}
	return nil
}

// forgotten reports whether the plan need not be there: nobody had started it. Programs before
// left no receipt of that.
func (t *toldBulk) forgotten() bool {
	return t.gone || !t.planned && t.State == BulkCancelled && t.StartedBy == ""
}

func (t *toldBulk) differs(b postgres.Bulk) (d differences) {
	d.compare("state", b.State, t.State)
	d.compare("action", b.Action, t.Action)
	d.compare("hash", hex.EncodeToString(b.Hash[:]), t.hash)
	if t.planned {
		d.compare("planner", b.Actor, t.Actor)
		d.compare("reason", b.Reason, t.Reason)
		d.times("time of planning", b.PlannedAt, t.PlannedAt)
	}
	d.compare("who started it", b.StartedBy, t.StartedBy)
	d.compare("who moved it last", b.MovedBy, t.MovedBy)
	return d
}
