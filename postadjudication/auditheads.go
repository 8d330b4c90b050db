package postadjudication

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/recourse-dev/recourse/receipts"
)

// InvariantHeads is checked when heads are compared that were noted earlier.
const InvariantHeads = "no trail is cut off or rewritten before its expected head"

// OthersHeads counts the cases of noted heads that are of other tenants, and names these.
// One that is nowhere is not counted, and neither is one of which the tenant has anything:
// those are for CompareHeads.
func (s *Service) OthersHeads(ctx context.Context, tenant string, expected map[receipts.CaseID]receipts.Head) (cases int, tenants []string, err error) {
	of, err := s.journal.TenantsOf(ctx, slices.Collect(maps.Keys(expected)))
	if err != nil {
		return 0, nil, err
	}
	for _, owners := range of {
		if !slices.Contains(owners, tenant) {
			cases, tenants = cases+1, append(tenants, owners...)
		}
	}
	slices.Sort(tenants)
	return cases, slices.Compact(tenants), nil
}

// CompareHeads holds heads that were noted earlier against the trails that an audit has
// verified, and gives each that does not agree: also those of tenants that the audit was not
// about. A trail may have grown, but must have passed through its noted head.
func (s *Service) CompareHeads(ctx context.Context, expected map[receipts.CaseID]receipts.Head, audit *Audit) (broken []Break, err error) {
	order := slices.SortedFunc(maps.Keys(expected), func(a, b receipts.CaseID) int { return bytes.Compare(a[:], b[:]) })
	for _, kase := range order {
		want, have, tenant := expected[kase], audit.Heads[kase], audit.tenants[kase]
		if have.Seq > want.Seq {
			at, err := s.Receipts(ctx, tenant, kase, want.Seq-1, 1)
			if err != nil {
				return nil, err
			}
			if len(at) == 1 {
				have = receipts.Head{Seq: at[0].Seq, Link: at[0].Link}
			}
		}
		b := Break{Invariant: InvariantHeads, Tenant: tenant, Case: kase}
		cut, isCut := audit.Cut[kase]
		switch {
		case isCut && cut <= want.Seq:
			b.Receipt = receipts.Receipt{Case: kase, Seq: cut}.ID()
			b.What = fmt.Sprintf("case %s: receipt %d is broken, and %d were noted", kase, cut, want.Seq)
		case have.Seq < want.Seq:
			b.What = fmt.Sprintf("case %s: the trail ends at %d, %d were noted", kase, have.Seq, want.Seq)
		case have != want:
			b.Receipt = receipts.Receipt{Case: kase, Seq: want.Seq}.ID()
			b.What = fmt.Sprintf("case %s: receipt %d is another than the one noted", kase, want.Seq)
		default:
			continue
		}
		broken = append(broken, b)
	}
	return broken, nil
}
