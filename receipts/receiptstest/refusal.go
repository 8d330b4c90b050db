package receiptstest

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/receipts"
)

func refusedAppendStoresNothing(ctx context.Context, log Log) error {
	tenant := newTenant()
	c, before, err := startCase(ctx, log, tenant, 1)
	if err != nil {
		return err
	}
	run := receipts.RunID(newID())
	bad := draft(run, "bad")
	bad.Payload.Amount = receipts.MaxInteger + 1
	unborn := receipts.CaseID(newID())
	for _, on := range []receipts.CaseID{c, unborn} {
		if err := log.Append(ctx, on, tenant, draft(run, "good"), bad); err == nil {
			return errors.New("a draft that can't be written was accepted")
		}
	}
	return errors.Join(unchanged(ctx, log, tenant, c, before), seesNothing(ctx, log, tenant, unborn))
}

// A log may finish an append after its context has ended, but then it must return no error.
func endedContextIsReported(ctx context.Context, log Log) error {
	tenant := newTenant()
	c, before, err := startCase(ctx, log, tenant, 1)
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := log.Append(ended, c, tenant, draft(receipts.RunID(newID()), "late")); err != nil {
		return unchanged(ctx, log, tenant, c, before)
	}
	_, err = readVerified(ctx, log, tenant, c, 2)
	return err
}

func seesNothing(ctx context.Context, log Log, tenant string, c receipts.CaseID) error {
	// An error is allowed here: a log may say that there is no such case.
	if rs, _ := log.Read(ctx, tenant, c); len(rs) != 0 {
		return fmt.Errorf("tenant %q sees %d receipts of case %s", tenant, len(rs), c)
	}
	return nil
}

func tenantSeesOnlyItsOwn(ctx context.Context, log Log) error {
	mine, yours := newTenant(), newTenant()
	c, _, err := startCase(ctx, log, mine, 2)
	if err != nil {
		return err
	}
	d, _, err := startCase(ctx, log, yours, 2)
	if err != nil {
		return err
	}
	return errors.Join(
		seesNothing(ctx, log, yours, c), seesNothing(ctx, log, mine, d),
		seesNothing(ctx, log, mine+" ", c), seesNothing(ctx, log, mine[:len(mine)-1]+"_", c),
		seesNothing(ctx, log, "%", c), seesNothing(ctx, log, mine, receipts.CaseID(newID())),
	)
}

func noTenantSeesNothing(ctx context.Context, log Log) error {
	tenant := newTenant()
	c, before, err := startCase(ctx, log, tenant, 1)
	if err != nil {
		return err
	}
	for _, on := range []receipts.CaseID{c, receipts.CaseID(newID())} {
		if err := log.Append(ctx, on, "", draft(receipts.RunID(newID()), "nobody's")); err == nil {
			return errors.New("an append without a tenant was accepted")
		}
		if err := seesNothing(ctx, log, "", on); err != nil {
			return err
		}
	}
	return unchanged(ctx, log, tenant, c, before)
}

func caseKeepsItsTenant(ctx context.Context, log Log) error {
	mine, yours := newTenant(), newTenant()
	c, before, err := startCase(ctx, log, mine, 2)
	if err != nil {
		return err
	}
	if err := log.Append(ctx, c, yours, draft(receipts.RunID(newID()), "intruder")); err == nil {
		return errors.New("another tenant's append was accepted")
	}
	return errors.Join(unchanged(ctx, log, mine, c, before), seesNothing(ctx, log, yours, c))
}

func rewritingIsRefused(ctx context.Context, log Log) error {
	tenant := newTenant()
	c, before, err := startCase(ctx, log, tenant, 3)
	if err != nil {
		return err
	}
	for _, r := range before {
		if err := log.TryRewrite(ctx, c, r.Seq); err == nil {
			return fmt.Errorf("rewriting %s was allowed", r.ID())
		}
	}
	return unchanged(ctx, log, tenant, c, before)
}
