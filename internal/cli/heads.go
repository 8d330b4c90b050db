package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

func readHeads(name string) (map[receipts.CaseID]receipts.Head, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	heads, err := receipts.ParseHeads(text)
	if err != nil {
		return nil, &exit{exitUsage, fmt.Errorf("%s: %w", name, err)}
	}
	return heads, nil
}

// compareHeads holds noted heads against the trails, whose chains the audit has
// verified, and gives each that does not agree. A trail may have grown, but must have
// passed through its noted head.
func compareHeads(ctx context.Context, service *postadjudication.Service, tenant string, expected map[receipts.CaseID]receipts.Head, audit *postadjudication.Audit) (broken []postadjudication.Break, err error) {
	order := slices.SortedFunc(maps.Keys(expected), func(a, b receipts.CaseID) int { return slices.Compare(a[:], b[:]) })
	for _, kase := range order {
		want, have := expected[kase], audit.Heads[kase]
		if have.Seq > want.Seq {
			at, err := service.Receipts(ctx, tenant, kase, want.Seq-1, 1)
			if err != nil {
				return nil, err
			}
			if len(at) == 1 {
				have = receipts.Head{Seq: at[0].Seq, Link: at[0].Link}
			}
		}
		b := postadjudication.Break{Invariant: invariantHeads, Tenant: tenant, Case: kase}
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

// writeHeads replaces a file at once, so that a crash leaves the old or the new.
func writeHeads(name string, heads map[receipts.CaseID]receipts.Head) (err error) {
	text, err := receipts.FormatHeads(heads)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".heads-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
