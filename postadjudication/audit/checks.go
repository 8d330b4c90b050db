package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
)

// tenantCheck is a check of rows of a tenant that the audit of its cases and escrows does not make.
type tenantCheck func(s *auditor, ctx context.Context, a *Report, tenant string) error

// statement returns the check that one statement makes in the database. What the statement finds
// breaks the invariant.
func statement(invariant string, check Check) tenantCheck {
	return func(s *auditor, ctx context.Context, a *Report, tenant string) error {
		return s.addDiscrepancies(ctx, a, invariant, check, Scope{Tenant: tenant})
	}
}

// tenantChecks are the checks that follow the cases of a tenant, in the order of a report. The line
// above a check says what breaks its invariant. A check that is a method compares rows with the
// receipts about them, and its breaks are of InvariantFold.
var tenantChecks = []tenantCheck{
	// An annotation that no receipt records. annotationAudit compares those that have receipts.
	statement(InvariantFold, trail.CheckAnnotations),
	// An operation log whose circuit breaker, rules, bulk plans or webhooks differ from its receipts.
	// Its chain is of InvariantChains.
	(*auditor).auditOperations,
	// A setting without its operation log, a log without its setting, and a policy at another version
	// than its last receipt.
	statement(InvariantFold, trail.CheckOperations),
	// A bulk plan whose counts differ from its items, and an item whose outcome differs from the
	// receipts.
	statement(InvariantFold, trail.CheckPlans),
	// A request to cancel or a lease that differs from the receipts, a count of replays that does, and a
	// lookup from before the death of its letter.
	statement(InvariantFold, trail.CheckControl),
	// A webhook without a position, a position without a webhook, and a position that would skip events.
	statement(InvariantFold, trail.CheckWebhooks),
	// A policy that differs from the receipt of its version.
	(*auditor).auditPolicies,
	// A dead letter and the run of its handler that do not name each other.
	statement(InvariantLetters, trail.CheckHandlers),
	// A dead letter that the list of dead letters lacks or shows otherwise: nobody would see it.
	statement(InvariantLetters, trail.CheckLetters),
	// An access key that differs from its receipts.
	(*auditor).auditKeys,
	// A number of people that differs from its last receipt.
	(*auditor).auditPeople,
	// A row that refers to a missing row. The schema has no foreign keys: they would lock a row for
	// every row that is written.
	statement(InvariantAccounted, trail.CheckOrphans),
}

// caseChecks are the statements among tenantChecks that can be made of one case.
var caseChecks = []struct {
	invariant string
	Check
}{
	{InvariantFold, trail.CheckAnnotations},
	{InvariantFold, trail.CheckPlans},
	{InvariantFold, trail.CheckControl},
	{InvariantLetters, trail.CheckHandlers},
	{InvariantLetters, trail.CheckLetters},
	{InvariantAccounted, trail.CheckOrphans},
}

// checkTenant makes the tenantChecks. An error of one does not keep the next from being made.
func (s *auditor) checkTenant(ctx context.Context, a *Report, tenant string) (err error) {
	for _, check := range tenantChecks {
		err = errors.Join(err, check(s, ctx, a, tenant))
	}
	return err
}

// auditOrder checks the order of events: no number is missing or duplicate, and every receipt
// has exactly one position, after the earlier receipts of its case. As each dead-lettered
// receipt gives one run.dead_lettered event, each letter then has one. A committed receipt that
// waits for its number counts as placed, so that the check holds while others write.
//
// Each tenant has its own numbers, from which its positions are made, and there is one order of
// all tenants. The database compares, per tenant in one snapshot: no list is kept in memory.
// The numbers of the order of all tenants are shared, so a missing number may belong to any tenant. It is
// reported once, without a tenant, also by an audit of some tenants, unless these have no receipts.
func (s *auditor) auditOrder(ctx context.Context, a *Report, tenants []string, all bool) error {
	for _, tenant := range tenants {
		for _, check := range []Check{trail.CheckOrder, trail.CheckTenantGaps} {
			if err := s.rows.Each(ctx, check, Scope{Tenant: tenant}, a.addFound(InvariantOrder, tenant, " of the tenant")); err != nil {
				return err
			}
		}
	}
	shared := ""
	if !all {
		if a.Receipts == 0 && a.OK() {
			return nil // an unknown tenant has no events
		}
		shared = "; all tenants share these numbers, so they may belong to another tenant"
	}
	if err := s.rows.Each(ctx, trail.CheckGaps, Scope{}, a.addFound(InvariantOrder, "", shared)); err != nil {
		return err
	}
	return s.addDiscrepancies(ctx, a, InvariantOrder, trail.CheckProjections, Scope{})
}

// gapText describes missing numbers or, if to < from, duplicate ones: then the next number is
// not above the last one.
func gapText(from, to int64) string {
	what := "missing in the order of events"
	if to < from {
		from, to, what = to+1, from-1, "given twice in the order of events"
	}
	if from == to {
		return fmt.Sprintf("number %d is %s", from, what)
	}
	return fmt.Sprintf("numbers %d to %d are %s", from, to, what)
}

// addDiscrepancies adds what a check finds as breaks, and as one break if a receipt can't be read,
// so that the check could not be made.
func (s *auditor) addDiscrepancies(ctx context.Context, a *Report, invariant string, check Check, of Scope) error {
	err := s.rows.Each(ctx, check, of, a.addFound(invariant, of.Tenant, ""))
	if errors.Is(err, trail.ErrUnreadableReceipt) {
		a.fail(invariant, breakSubject{tenant: of.Tenant, caseID: of.Case}, "a comparison with the receipts of %s could not be made: %v", of.Tenant, err)
		return nil
	}
	return err
}

// addFound returns a callback that adds a Discrepancy as a break. whose follows the description of
// missing numbers.
func (a *Report) addFound(invariant, tenant, whose string) func(Discrepancy) {
	return func(d Discrepancy) {
		at := breakSubject{tenant: tenant, caseID: d.Case, run: d.Run, receipt: d.Receipt}
		a.failDiffering(invariant, at, d.Stored, d.Expected, "%s", cmp.Or(d.Message, gapText(d.From, d.To)+whose))
	}
}
