package postadjudication_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// The receipts of removed letters hold the digest of their archive file: a file that is missing
// or differs in one byte is detected and named.
func TestAChangedArchiveFileIsDetected(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	r.DeadLetters(0, 3, rig.Refuses)
	folder := t.TempDir()
	store, err := retention.OpenDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	k := r.NewPruner(func(c *postadjudication.Config) { c.Archive = store })
	for _, transaction := range []string{"txr_0", "txr_1"} {
		k.MustPurge(deadletter.Filter{Transaction: transaction}, 1)
	}
	k.At(188 * day).MustPrune(retention.Report{Announced: 1})
	k.At(196 * day).MustPrune(retention.Report{Pruned: 1})
	var files []string
	for name, err := range store.Names(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	if len(files) != 3 {
		t.Fatalf("%v", files)
	}
	check := func(want audit.Archived, words ...string) {
		t.Helper()
		reader, err := audit.OpenArchive(folder)
		if err != nil {
			t.Fatal(err)
		}
		a, err := audit.Run(ctx, k.AuditReader(), audit.Query{Archive: reader})
		if err != nil || *a.Archive != want || len(a.Breaks) != len(words) {
			t.Fatalf("%+v, %v, %+v; want %+v", a.Archive, err, a.Breaks, want)
		}
		for _, w := range words {
			said := false
			for _, b := range a.Breaks {
				said = said || b.Invariant == audit.InvariantArchive && strings.Contains(b.What, w) && b.Receipt != "" && b.Tenant == "acme"
			}
			if !said {
				t.Errorf("%q is not reported: %+v", w, a.Breaks)
			}
		}
	}
	check(audit.Archived{Files: 3, Same: 3})
	path := filepath.Join(folder, filepath.FromSlash(files[0]))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	check(audit.Archived{Files: 3, Same: 2, Changed: 1}, files[0]+" is changed")
	if err := os.Remove(filepath.Join(folder, filepath.FromSlash(files[1]))); err != nil {
		t.Fatal(err)
	}
	check(audit.Archived{Files: 3, Same: 1, Changed: 1, Missing: 1}, files[0]+" is changed", files[1]+" is missing")
	reader, err := audit.OpenArchive(folder)
	if err != nil {
		t.Fatal(err)
	}
	all, err := audit.Run(ctx, k.AuditReader(), audit.Query{Archive: reader})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all.Breaks {
		one, err := audit.Run(ctx, k.AuditReader(), audit.Query{Tenants: []string{"acme"}, Case: b.Case, Archive: reader})
		if err != nil || len(one.Breaks) != 1 || one.Breaks[0] != b || one.Archive.Files != 1 {
			t.Errorf("one case: %+v, %v; want %+v", one, err, b)
		}
	}
	if _, err := audit.OpenArchive(filepath.Join(folder, "none")); err == nil {
		t.Error("a missing directory was accepted as an archive")
	}
}
