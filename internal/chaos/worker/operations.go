package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// annotate holds, releases or marks a letter.
func (p *process) annotate(ctx context.Context, c Command) error {
	id, err := receipts.ParseRunID(c.Run)
	if err != nil {
		return err
	}
	switch c.Do {
	case Hold:
		_, err = p.service.As(c.Tenant, actor).DeadLetters.Hold(ctx, id, reason)
	case ReleaseHold:
		_, err = p.service.As(c.Tenant, actor).DeadLetters.Release(ctx, id, reason)
	case Mark:
		review := true
		_, err = p.service.As(c.Tenant, actor).DeadLetters.Mark(ctx, id, deadletter.Mark{Reason: reason, ManualReviewRequired: &review})
	case Purge:
		err = p.purge(ctx, c.Tenant)
	}
	return err
}

// purge removes the refused letters of a tenant by a plan that this process runs.
func (p *process) purge(ctx context.Context, tenant string) error {
	plans, ctx := p.service.As(tenant, actor).Bulk, postadjudication.WithCaller(ctx, postadjudication.Caller{NoKeys: true})
	plan, err := plans.Plan(ctx, bulk.Request{Action: bulk.Purge, Reason: reason, Filter: deadletter.Filter{Status: "open", Outcome: "release"}})
	if err != nil {
		return err
	}
	done, err := plans.RunHere(ctx, plan.ID, plan.Hash)
	if err == nil && done.Progress.Done != plan.Ready {
		err = fmt.Errorf("worker: %d letters were purged of %d", done.Progress.Done, plan.Ready)
	}
	return err
}

// configureRetention sets the retention of letters by the settings.
func (s Settings) configureRetention(c *postadjudication.Config) (err error) {
	if s.Archive == "" {
		return nil
	}
	if s.Retain != "" {
		c.Retention = []retention.Rule{{Family: postadjudication.Family, MaxAge: s.Retain}, {Family: jobs.Family, MaxAge: s.Retain}}
		c.PruneEvery = 100 * time.Millisecond
	}
	c.Archive, err = retention.OpenDir(s.Archive)
	return err
}

// free frees the reservations of the tenant's cases, by a plan.
func (p *process) free(ctx context.Context, c Command) error {
	b, err := p.service.As(c.Tenant, actor).Bulk.PlanFree(ctx, bulk.FreeRequest{All: true, Reason: reason, Reference: "chaos"})
	if err != nil {
		return unlessNothing(err)
	}
	_, err = p.service.As(c.Tenant, secondActor).Bulk.Run(ctx, b.ID, b.Hash)
	return err
}

// returned records that all payments of the tenant's settled cases came back, by a plan.
func (p *process) returned(ctx context.Context, c Command) error {
	as := p.service.As(c.Tenant, actor)
	page, err := as.Cases.List(ctx, casestatus.Filter{States: []string{string(settlement.Settled)}}, "", 100)
	if err != nil || len(page.Cases) == 0 {
		return err
	}
	q := bulk.ReturnsRequest{Reason: reason}
	for _, paid := range page.Cases {
		q.Returns = append(q.Returns, bulk.ReturnedPayment{Transaction: paid.Transaction, Reference: "chaos " + paid.Transaction, Amount: settlement.Money{Minor: paid.Released + paid.Refunded - paid.Returned, Currency: paid.Currency}})
	}
	planned, err := as.Bulk.PlanReturns(ctx, q)
	if err != nil || planned.Plan == nil {
		return err
	}
	_, err = p.service.As(c.Tenant, secondActor).Bulk.Run(ctx, planned.Plan.ID, planned.Plan.Hash)
	return err
}

// people sets how many people the tenant's money takes; lowering it takes two.
func (p *process) people(ctx context.Context, c Command) error {
	_, err := p.service.As(c.Tenant, actor).People.Set(ctx, postadjudication.PeopleChange{People: c.Attempts, Reason: reason})
	var planned *bulk.SecondPersonError
	if errors.As(err, &planned) {
		_, err = p.service.As(c.Tenant, secondActor).Bulk.Run(ctx, planned.Plan.ID, planned.Plan.Hash)
	}
	return err
}

// unlessNothing returns the error of a plan; nil where nothing was selected.
func unlessNothing(err error) error {
	var nothing *bulk.NothingSelectedError
	if errors.As(err, &nothing) {
		return nil
	}
	return err
}

// bulk forks all letters of a tenant by a plan, or cancels the plan in the middle of it.
func (p *process) bulk(ctx context.Context, c Command) error {
	q := bulk.Request{All: true, Action: bulk.Fork, Reason: reason}
	if c.Do == CancelBulk {
		q.Throttle = 1 // so that it does not finish before the cancel
	}
	b, err := p.service.As(c.Tenant, actor).Bulk.Plan(ctx, q)
	if err != nil {
		return unlessNothing(err)
	}
	if _, err := p.service.As(c.Tenant, secondActor).Bulk.Run(ctx, b.ID, b.Hash); err != nil || c.Do == Bulk {
		return err
	}
	_, err = p.service.As(c.Tenant, actor).Bulk.Cancel(ctx, b.ID, reason)
	return err
}

// rule sets a rule that replays all letters of a tenant a number of times.
func (p *process) rule(ctx context.Context, c Command) error {
	_, err := p.service.As(c.Tenant, actor).Rules.Set(ctx, replay.Change{Reason: reason,
		Rule: replay.Rule{Name: "all", Enabled: true, All: true, Delay: "0s", MaxReplays: c.Attempts}})
	return err
}

// access does what the API does with the journal: keys, refusals, and requests that must
// not be executed twice.
func (p *process) access(ctx context.Context, c Command) error {
	switch c.Do {
	case UseKeys:
		return p.keys(ctx, c.Tenant)
	case Refuse:
		refusal := postadjudication.AccessRefusal{Tenant: c.Tenant, Actor: actor, Action: "fork", Code: "role_missing"}
		if c.Run != "" {
			var err error
			if refusal.Run, err = receipts.ParseRunID(c.Run); err != nil {
				return err
			}
		}
		return p.service.RecordRefusal(ctx, refusal)
	}
	_, begun, err := p.service.BeginRequest(ctx, c.Tenant, reason, sha256.Sum256([]byte(actor)))
	if err != nil || begun == nil {
		return err
	}
	return begun.Answer(ctx, postadjudication.StoredResponse{Status: 200, Body: []byte("{}")})
}

// keys makes a key, uses it and revokes it.
func (p *process) keys(ctx context.Context, tenant string) error {
	_, k, err := p.service.As(tenant, actor).Keys.Create(ctx, postadjudication.NewKey{
		Principal: actor, Roles: []postadjudication.AccessRole{"operator"}, Reason: reason,
	})
	if err != nil {
		return err
	}
	if err := p.service.KeyStore().UseKey(ctx, k.ID, k.CreatedAt); err != nil {
		return err
	}
	gone, err := p.service.As(tenant, actor).Keys.Revoke(ctx, k.Prefix, reason)
	if err == nil && gone.RevokedAt == nil {
		err = errors.New("worker: the key is not revoked")
	}
	return err
}
