package audit

import (
	"context"
	"errors"
	"strconv"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
)

// escrowAudit compares a tenant's escrows with the sums of its cases, by reference.
type escrowAudit struct {
	*auditor
	tenant   string
	breached map[string]int64 // by reference, of the escrows that are breached
	sums     map[string]escrowSums
}

// escrowSums is what the cases of an escrow add up to.
type escrowSums struct {
	committed int64
	uncovered int64 // binding.Settlement.Uncovered
	unknown   bool  // the receipts of a case do not give what it paid, which is a break of its own
}

// newEscrowAudit reads by how much the escrows are breached, before the receipts are read: what is
// recorded as breached then follows from receipts that are stored then, however many are written meanwhile.
func (s *auditor) newEscrowAudit(ctx context.Context, tenant string) (*escrowAudit, error) {
	x := &escrowAudit{s, tenant, map[string]int64{}, map[string]escrowSums{}}
	escrows, err := s.rows.Escrows(ctx, tenant)
	for _, e := range escrows {
		if e.Breached > 0 {
			x.breached[e.Reference] = e.Breached
		}
	}
	return x, err
}

// add adds a case and what its audit found.
func (x *escrowAudit) add(c *StoredCase, found *Report) {
	if c.Escrow == 0 {
		return
	}
	sums := x.sums[c.Reference]
	sums.committed += c.State.Committed()
	sums.uncovered += found.uncovered
	sums.unknown = sums.unknown || found.settlementUnknown
	x.sums[c.Reference] = sums
}

// compare compares the escrows with the cases that were added.
func (x *escrowAudit) compare(ctx context.Context, a *Report) error {
	escrows, err := x.rows.Escrows(ctx, x.tenant)
	if err != nil {
		return err
	}
	for _, e := range escrows {
		sums := x.sums[e.Reference]
		if err := x.auditEscrow(ctx, a, x.tenant, e, sums.committed); err != nil {
			return err
		}
		a.auditBreached(breakSubject{tenant: x.tenant}, e.Reference, x.breached[e.Reference], sums)
	}
	return nil
}

// auditEscrow compares the committed sum of an escrow with its cases, and with the sum it
// holds. A sum that seems wrong is read again in one transaction first.
func (s *auditor) auditEscrow(ctx context.Context, a *Report, tenant string, e Escrow, sum int64) (err error) {
	if e.Committed != sum {
		found := false
		switch e, sum, found, err = s.rows.Escrow(ctx, tenant, e.Reference); {
		case err != nil:
			return err
		case !found:
			return errEscrowVanished
		}
	}
	if e.Committed != sum {
		a.failDiffering(InvariantEscrows, breakSubject{tenant: tenant}, strconv.FormatInt(e.Committed, 10), strconv.FormatInt(sum, 10), "escrow %s of %s: committed %d, its cases add up to %d", e.Reference, tenant, e.Committed, sum)
	}
	// Without the open deltas: Breached rises only when deltas are folded.
	if folded := e.Committed - e.OpenDeltas; folded > e.Held+e.Breached {
		a.fail(InvariantEscrows, breakSubject{tenant: tenant}, "escrow %s of %s: committed %d of %d held, and stored as breached by %d", e.Reference, tenant, folded, e.Held, e.Breached)
	}
	return nil
}

var errEscrowVanished = errors.New("audit: an escrow vanished while it was audited")

// auditBreached compares by how much an escrow is recorded as breached with the payments in its
// receipts: only what was paid beyond reservations can breach it. Less is no break, since the sum that
// is committed falls again when a reservation is freed.
func (a *Report) auditBreached(at breakSubject, reference string, breached int64, sums escrowSums) {
	if breached > sums.uncovered && !sums.unknown {
		a.failDiffering(InvariantEscrows, at, strconv.FormatInt(breached, 10), strconv.FormatInt(sums.uncovered, 10),
			"escrow %s of %s: stored as breached by %d, the receipts say that %d was paid beyond what was reserved", reference, at.tenant, breached, sums.uncovered)
	}
}

// auditEscrowOf makes the checks of one escrow, for the audit of one of its cases.
func (s *auditor) auditEscrowOf(ctx context.Context, a *Report, tenant, reference string) error {
	e, sum, found, err := s.rows.Escrow(ctx, tenant, reference)
	if err != nil || !found { // trail.CheckOrphans reports a case whose escrow is not there
		return err
	}
	if err := s.auditEscrow(ctx, a, tenant, e, sum); err != nil || e.Breached == 0 {
		return err
	}
	sums := escrowSums{}
	cases, err := s.rows.EscrowCases(ctx, tenant, reference)
	if err != nil {
		return err
	}
	for _, id := range cases {
		_, rs, err := s.rows.Case(ctx, tenant, id)
		if err != nil {
			return err
		}
		folded, err := binding.FoldSettlement(rs)
		sums.uncovered += folded.Uncovered
		sums.unknown = sums.unknown || err != nil
	}
	a.auditBreached(breakSubject{tenant: tenant}, reference, e.Breached, sums)
	return nil
}
