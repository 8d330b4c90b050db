package postadjudication

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/receipts"
)

// InvariantHeads is checked when heads are compared that were noted earlier.
const InvariantHeads = "no trail is cut off or rewritten before its expected head"

// OthersHeads counts the noted heads whose cases belonged to other tenants when they were noted,
// and names these tenants. It does not count cases that are gone, cases of which the tenant has
// anything, and cases that were moved to another tenant since: CompareHeads reports those.
func (s *Service) OthersHeads(ctx context.Context, tenant string, expected map[receipts.CaseID]receipts.Head) (cases int, tenants []string, err error) {
	of, err := s.journal.TenantsOf(ctx, slices.Collect(maps.Keys(expected)))
	if err != nil {
		return 0, nil, err
	}
	noted := false // of another tenant
	for kase, owners := range of {
		if slices.Contains(owners, tenant) {
			continue
		}
		cases, tenants = cases+1, append(tenants, owners...)
		for _, owner := range owners {
			if noted {
				break
			}
			if noted, err = s.notedOfAnother(ctx, tenant, owner, kase, expected[kase]); err != nil {
				return 0, nil, err
			}
		}
	}
	if !noted {
		return 0, nil, nil
	}
	slices.Sort(tenants)
	return cases, slices.Compact(tenants), nil
}

// notedOfAnother reports whether the receipt that a noted head is of names another tenant. The
// link of the head proves the body that says so: who moves a case can't change it.
func (s *Service) notedOfAnother(ctx context.Context, tenant, owner string, kase receipts.CaseID, noted receipts.Head) (bool, error) {
	before := receipts.Genesis(kase)
	trail, err := s.Receipts(ctx, owner, kase, max(0, noted.Seq-2), 2)
	if err != nil {
		return false, err
	}
	for _, r := range trail {
		if r.Seq == noted.Seq && before.Seq == r.Seq-1 && before.Next(r.Body) == noted {
			e, err := receipts.Parse(r.Body)
			return err == nil && e.Tenant != tenant, nil
		}
		before = receipts.Head{Seq: r.Seq, Link: r.Link}
	}
	return false, nil
}

// headWords is a head as a heads file has it, without its case.
func headWords(h receipts.Head) string {
	return fmt.Sprintf("%d %s", h.Seq, base64.StdEncoding.EncodeToString(h.Link[:]))
}

// CompareHeads holds heads that were noted earlier against the trails that an audit has
// verified, and gives each that does not agree: also those of tenants that the audit was not
// about. A trail may have grown, but must have passed through its noted head.
func (s *Service) CompareHeads(ctx context.Context, expected map[receipts.CaseID]receipts.Head, audit *Audit) (broken []Break, err error) {
	order := slices.SortedFunc(maps.Keys(expected), func(a, b receipts.CaseID) int { return bytes.Compare(a[:], b[:]) })
	gone := slices.DeleteFunc(slices.Clone(order), func(kase receipts.CaseID) bool { return audit.tenants[kase] != "" })
	owners, err := s.journal.TenantsOf(ctx, gone)
	if err != nil {
		return nil, err
	}
	for _, kase := range order {
		have, err := s.headAt(ctx, audit, kase, expected[kase].Seq)
		if err != nil {
			return nil, err
		}
		if b := headBreak(audit, kase, expected[kase], have); b != nil {
			if others := owners[kase]; len(others) > 0 {
				b.What += "; the case is stored as that of tenant " + strings.Join(others, ", ")
			}
			broken = append(broken, *b)
		}
	}
	return broken, nil
}

// headAt is the head that a verified trail passed through at a sequence, or its last one when
// it is shorter.
func (s *Service) headAt(ctx context.Context, audit *Audit, kase receipts.CaseID, seq int64) (receipts.Head, error) {
	have := audit.Heads[kase]
	if have.Seq <= seq {
		return have, nil
	}
	at, err := s.Receipts(ctx, audit.tenants[kase], kase, seq-1, 1)
	if len(at) == 1 {
		have = receipts.Head{Seq: at[0].Seq, Link: at[0].Link}
	}
	return have, err
}

// headBreak is the break of a trail that does not pass through its noted head; nil when it does.
func headBreak(audit *Audit, kase receipts.CaseID, want, have receipts.Head) *Break {
	b := Break{Invariant: InvariantHeads, Tenant: audit.tenants[kase], Case: kase, Stored: headWords(have), Expected: headWords(want)}
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
		return nil
	}
	return &b
}
