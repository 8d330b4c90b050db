package worker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// annotate does what people do with a letter that they do not fork.
func (p *process) annotate(ctx context.Context, c Command) error {
	id, err := receipts.ParseRunID(c.Run)
	if err != nil {
		return err
	}
	q := postadjudication.HoldRequest{Actor: actor, Reason: reason}
	switch c.Do {
	case Hold:
		_, err = p.service.Hold(ctx, c.Tenant, id, q)
	case ReleaseHold:
		_, err = p.service.ReleaseHold(ctx, c.Tenant, id, q)
	case Mark:
		review := true
		_, err = p.service.Mark(ctx, c.Tenant, id, postadjudication.MarkRequest{Actor: actor, Reason: reason, ManualReviewRequired: &review})
	case Purge:
		err = p.purge(ctx, c.Tenant)
	}
	return err
}

// purge removes the refused letters of a tenant.
func (p *process) purge(ctx context.Context, tenant string) error {
	q := postadjudication.PurgeRequest{Actor: actor, Reason: reason, Filter: postadjudication.LetterFilter{Status: "open", Outcome: "release"}}
	plan, err := p.service.PlanPurge(ctx, tenant, q)
	if err != nil {
		return err
	}
	q.Confirm = strconv.Itoa(plan.Letters)
	done, err := p.service.Purge(postadjudication.WithCaller(ctx, postadjudication.Caller{NoKeys: true}), tenant, q)
	if err == nil && done.Letters != plan.Letters {
		err = fmt.Errorf("worker: %d letters were purged of %d", done.Letters, plan.Letters)
	}
	return err
}

// configureRetention has letters kept as the settings say.
func (s Settings) configureRetention(c *postadjudication.Config) (err error) {
	if s.Archive == "" {
		return nil
	}
	if s.Retain != "" {
		c.Retention = []postadjudication.RetentionRule{{Family: postadjudication.Family, MaxAge: s.Retain}}
		c.PruneEvery = 100 * time.Millisecond
	}
	c.Archive, err = postadjudication.ArchiveDir(s.Archive)
	return err
}
