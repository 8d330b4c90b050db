package audit

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

// InvariantHeads is checked when saved heads are compared.
const InvariantHeads = "no trail is cut off or rewritten before its expected head"

// HeadsOfOtherTenants returns how many of the cases with a saved head belong to other tenants than
// the given one, and the names of these tenants. It returns zero unless at least one head was saved for
// another tenant: cases that were only moved to another tenant since are for CompareHeads to report,
// as are missing cases.
func HeadsOfOtherTenants(ctx context.Context, r ReceiptReader, tenant string, saved receipts.Heads) (cases int, tenants []string, err error) {
	of, err := r.Owners(ctx, slices.Collect(maps.Keys(saved)))
	if err != nil {
		return 0, nil, err
	}
	savedElsewhere := false // at least one head was saved for another tenant
	for caseID, owners := range of {
		if slices.Contains(owners, tenant) {
			continue
		}
		cases, tenants = cases+1, append(tenants, owners...)
		for _, owner := range owners {
			if savedElsewhere {
				break
			}
			if savedElsewhere, err = headSavedForAnother(ctx, r, tenant, owner, caseID, saved[caseID]); err != nil {
				return 0, nil, err
			}
		}
	}
	if !savedElsewhere {
		return 0, nil, nil
	}
	slices.Sort(tenants)
	return cases, slices.Compact(tenants), nil
}

// headSavedForAnother reports whether the receipt of a saved head names another tenant. The
// link of the head proves the receipt's body: moving a case to another tenant does not change
// it.
func headSavedForAnother(ctx context.Context, r ReceiptReader, tenant, owner string, caseID receipts.CaseID, saved receipts.Head) (bool, error) {
	before := receipts.Genesis(caseID)
	trail, err := r.Trail(ctx, owner, caseID, max(0, saved.Seq-2), 2)
	if err != nil {
		return false, err
	}
	for _, one := range trail {
		if one.Seq == saved.Seq && before.Seq == one.Seq-1 && before.Next(one.Body) == saved {
			e, err := one.Entry()
			return err == nil && e.Tenant != tenant, nil
		}
		before = receipts.Head{Seq: one.Seq, Link: one.Link}
	}
	return false, nil
}

// headText formats a head as in a heads file, without its case.
func headText(h receipts.Head) string {
	return fmt.Sprintf("%d %s", h.Seq, base64.StdEncoding.EncodeToString(h.Link[:]))
}

// CompareHeads compares saved heads with the trails that an audit has verified and returns a
// Break for each mismatch, also for cases of tenants that were not audited. A trail may have
// grown since, but must contain its saved head.
func CompareHeads(ctx context.Context, r ReceiptReader, saved receipts.Heads, report *Report) (broken []Break, err error) {
	order := slices.SortedFunc(maps.Keys(saved), func(a, b receipts.CaseID) int { return bytes.Compare(a[:], b[:]) })
	missing := slices.DeleteFunc(slices.Clone(order), func(caseID receipts.CaseID) bool { return report.tenants[caseID] != "" })
	owners, err := r.Owners(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, caseID := range order {
		have, err := headAt(ctx, r, report, caseID, saved[caseID].Seq)
		if err != nil {
			return nil, err
		}
		if b := headBreak(report, caseID, saved[caseID], have); b != nil {
			if others := owners[caseID]; len(others) > 0 {
				b.What += "; the case is stored under tenant " + strings.Join(others, ", ")
			}
			broken = append(broken, *b)
		}
	}
	return broken, nil
}

// headAt returns the head of a verified trail at a sequence, or the last head of a shorter
// trail.
func headAt(ctx context.Context, r ReceiptReader, report *Report, caseID receipts.CaseID, seq int64) (receipts.Head, error) {
	have := report.Heads[caseID]
	if have.Seq <= seq {
		return have, nil
	}
	at, err := r.Trail(ctx, report.tenants[caseID], caseID, seq-1, 1)
	if len(at) == 1 {
		have = receipts.Head{Seq: at[0].Seq, Link: at[0].Link}
	}
	return have, err
}

// headBreak returns the break of a trail that does not contain its saved head, else nil.
func headBreak(report *Report, caseID receipts.CaseID, want, have receipts.Head) *Break {
	b := Break{Invariant: InvariantHeads, Tenant: report.tenants[caseID], Case: caseID, Stored: headText(have), Expected: headText(want)}
	brokenAt, isBroken := report.BrokenAt[caseID]
	switch {
	case isBroken && brokenAt <= want.Seq:
		b.Receipt = receipts.Receipt{Case: caseID, Seq: brokenAt}.ID()
		b.What = fmt.Sprintf("case %s: receipt %d is broken, the saved head is at %d", caseID, brokenAt, want.Seq)
	case have.Seq < want.Seq:
		b.What = fmt.Sprintf("case %s: the trail ends at %d, the saved head is at %d", caseID, have.Seq, want.Seq)
	case have != want:
		b.Receipt = receipts.Receipt{Case: caseID, Seq: want.Seq}.ID()
		b.What = fmt.Sprintf("case %s: receipt %d differs from the saved head", caseID, want.Seq)
	default:
		return nil
	}
	return &b
}
