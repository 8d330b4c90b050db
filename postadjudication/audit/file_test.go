package audit

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

// memory is a ReceiptReader of receipts in memory.
type memory map[string][]receipts.Receipt // by tenant

func (m memory) Tenants(context.Context) (out []string, _ error) {
	for tenant := range m {
		out = append(out, tenant)
	}
	return out, nil // in no order: WriteFile sorts
}

func (m memory) Owners(context.Context, []receipts.CaseID) (map[receipts.CaseID][]string, error) {
	return nil, errors.ErrUnsupported
}

func (m memory) CountCases(context.Context, []string) (int, error) { return 0, errors.ErrUnsupported }

func (m memory) Trail(context.Context, string, receipts.CaseID, int64, int) ([]receipts.Receipt, error) {
	return nil, errors.ErrUnsupported
}

func (m memory) Receipts(_ context.Context, tenant string) iter.Seq2[receipts.Receipt, error] {
	return func(yield func(receipts.Receipt, error) bool) {
		for _, r := range m[tenant] {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// plainTrail returns the chained receipts of a plain task that was executed.
func plainTrail(t *testing.T, tenant string, id receipts.CaseID) []receipts.Receipt {
	t.Helper()
	run, at := receipts.RunID(uuid.New()), time.Unix(1_800_000_000, 123_000).UTC()
	out, _, err := receipts.Chain(id, tenant, receipts.Genesis(id),
		receipts.Draft{Run: run, Subtype: receipts.Submitted, Actor: "user:<ada>", At: at, Payload: receipts.Payload{Family: "mail", RetryKey: "k\u2028", Queue: "mail:0"}},
		receipts.Draft{Run: run, Subtype: receipts.AttemptStarted, Actor: "worker:w", At: at.Add(time.Second), Payload: receipts.Payload{Attempt: 1}},
		receipts.Draft{Run: run, Subtype: receipts.AttemptSucceeded, Actor: "worker:w", At: at.Add(2 * time.Second), Payload: receipts.Payload{Attempt: 1, BudgetSpent: 1, AttemptClass: "executed", OutcomeClass: "executed"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "receipts.jsonl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func opened(t *testing.T, text string) *File {
	t.Helper()
	f, err := OpenFile(written(t, text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// threeCases returns a file of two cases of acme and one of bank, and what it has.
func threeCases(t *testing.T) (text string, all memory, ids []receipts.CaseID) {
	t.Helper()
	for n := range 3 {
		ids = append(ids, receipts.CaseID{0: byte(n + 1), 15: 9})
	}
	all = memory{"bank": plainTrail(t, "bank", ids[0]), "acme": slices.Concat(plainTrail(t, "acme", ids[1]), plainTrail(t, "acme", ids[2]))}
	var out strings.Builder
	if written, err := WriteFile(context.Background(), all, nil, &out); err != nil || written.Receipts != 9 || strings.Count(out.String(), "\n") != 9 {
		t.Fatalf("%d receipts, %v: %s", written.Receipts, err, out.String())
	}
	return out.String(), all, ids
}

// What was written is read again: to the byte, by tenant and by case, and it verifies.
func TestAFileHasTheReceiptsThatWereWritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	text, all, ids := threeCases(t)
	f := opened(t, text)
	if tenants, err := f.Tenants(ctx); err != nil || !slices.Equal(tenants, []string{"acme", "bank"}) {
		t.Errorf("%v, %v", tenants, err)
	}
	same := func(a, b receipts.Receipt) bool {
		return a.ID() == b.ID() && a.Run == b.Run && a.Tenant == b.Tenant && a.Source == b.Source && a.Subtype == b.Subtype && a.Actor == b.Actor && a.At.Equal(b.At) && string(a.Body) == string(b.Body) && a.Link == b.Link
	}
	for tenant, want := range all {
		var got []receipts.Receipt
		for r, err := range f.Receipts(ctx, tenant) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("%s: %+v, want %+v", tenant, got, want)
		}
	}
	if rs, err := f.Trail(ctx, "acme", ids[1], 1, 1); err != nil || len(rs) != 1 || !same(rs[0], all["acme"][1]) {
		t.Errorf("%+v, %v", rs, err)
	}
	if rs, err := f.Trail(ctx, "acme", ids[1], 0, 100); err != nil || len(rs) != 3 {
		t.Errorf("%+v, %v", rs, err)
	}
	if rs, err := f.Trail(ctx, "bank", ids[1], 0, 100); err != nil || len(rs) != 0 {
		t.Errorf("of another tenant: %+v, %v", rs, err)
	}
	if owners, err := f.Owners(ctx, ids); err != nil || len(owners) != 3 || !slices.Equal(owners[ids[0]], []string{"bank"}) {
		t.Errorf("%v, %v", owners, err)
	}
	if n, err := f.CountCases(ctx, []string{"acme"}); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	a, err := Run(ctx, f, Query{})
	if err != nil || !a.OK() || a.Cases != 3 || a.Runs != 3 || a.Receipts != 9 || a.Chains != 3 || len(a.Heads) != 3 {
		t.Errorf("%+v, %v", a, err)
	}
	if !slices.Equal(a.NotChecked, needRows) || a.Verdict(InvariantEscrows) != NotCheckedVerdict || a.Verdict(InvariantChains) != "ok" || a.Verdict(InvariantBudgets) != CheckedInPartVerdict {
		t.Errorf("not checked: %q", a.NotChecked)
	}
	one, err := Case(ctx, f, "bank", ids[0], Query{})
	if err != nil || !one.OK() || one.Chains != 1 || one.Heads[ids[0]] != a.Heads[ids[0]] || !slices.Equal(one.NotChecked, needRows) || one.Verdict(InvariantOrder) != NotCheckedForOneVerdict {
		t.Errorf("%+v, %v", one, err)
	}
	if _, err := Case(ctx, f, "acme", ids[0], Query{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a case of another tenant: %v", err)
	}
}

// A file that was changed is reported by its chains, its receipts' order, or its saved heads.
func TestAChangedFileIsDetected(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	text, _, ids := threeCases(t)
	whole, err := Run(ctx, opened(t, text), Query{})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(text, "\n")[:9]
	without := func(n int) string { return strings.Join(slices.Delete(slices.Clone(lines), n, n+1), "") }
	for what, c := range map[string]struct {
		text, invariant, word string
		heads                 bool // noticed by heads alone
	}{
		"an actor":              {strings.Replace(text, `"actor":"worker:w"`, `"actor":"worker:x"`, 1), InvariantChains, "column actor differs", false},
		"a receipt inside":      {without(1), InvariantChains, "", false},
		"the first receipt":     {without(0), InvariantChains, "", false},
		"the last receipt":      {without(2), InvariantHeads, "the trail ends at 2, the saved head is at 3", true},
		"a whole case":          {strings.Join(lines[3:], ""), InvariantHeads, "the trail ends at 0, the saved head is at 3", true},
		"a case under a tenant": {strings.ReplaceAll(text, `"tenant":"bank"`, `"tenant":"bonk"`), InvariantChains, "column tenant differs", false},
	} {
		f := opened(t, c.text)
		a, err := Run(ctx, f, Query{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		broken, err := CompareHeads(ctx, f, whole.Heads, a)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if c.heads != a.OK() {
			t.Errorf("%s: ok %t: %+v", what, a.OK(), a.Breaks)
		}
		if !slices.ContainsFunc(slices.Concat(a.Breaks, broken), func(b Break) bool { return b.Invariant == c.invariant && strings.Contains(b.What, c.word) }) {
			t.Errorf("%s: %+v, %+v", what, a.Breaks, broken)
		}
	}
	other := opened(t, text)
	if n, tenants, err := HeadsOfOtherTenants(ctx, other, "acme", whole.Heads); err != nil || n != 1 || !slices.Equal(tenants, []string{"bank"}) {
		t.Errorf("heads of others: %d, %v, %v", n, tenants, err)
	}
	if broken, err := CompareHeads(ctx, other, receipts.Heads{ids[0]: whole.Heads[ids[0]]}, whole); err != nil || len(broken) != 0 {
		t.Errorf("%+v, %v", broken, err)
	}
}

// A receipt that may not follow those before it is a break, without any row: of the budgets if it is early
// or spends less, else of the fold.
func TestAFileWithReceiptsThatCanNotFollowIsBroken(t *testing.T) {
	t.Parallel()
	id, run, at := receipts.CaseID(uuid.New()), receipts.RunID(uuid.New()), time.Unix(1_800_000_000, 0)
	for invariant, second := range map[string]receipts.Draft{
		InvariantFold:    {Run: run, Subtype: receipts.AttemptSucceeded, Actor: "worker:w", At: at, Payload: receipts.Payload{Attempt: 1}},
		InvariantBudgets: {Run: run, Subtype: receipts.AttemptStarted, Actor: "worker:w", At: at, Payload: receipts.Payload{Attempt: 1}},
	} {
		rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id),
			receipts.Draft{Run: run, Subtype: receipts.Submitted, Actor: "user:ada", At: at, Payload: receipts.Payload{Family: "mail", RetryKey: "k", NextRetryAt: at.Add(time.Second)}}, second)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if _, err := WriteFile(context.Background(), memory{"acme": rs}, []string{"acme"}, &out); err != nil {
			t.Fatal(err)
		}
		a, err := Run(context.Background(), opened(t, out.String()), Query{})
		if err != nil || a.Chains != 1 || len(a.Breaks) != 1 || a.Breaks[0].Invariant != invariant || a.Breaks[0].Receipt != rs[1].ID() {
			t.Errorf("%s: %+v, %v", second.Subtype, a, err)
		}
	}
}

// The guide has each member of a line, and no other.
func TestTheGuideNamesTheMembersOfALine(t *testing.T) {
	t.Parallel()
	text, _, _ := threeCases(t)
	inFile := map[string]bool{}
	for line := range strings.Lines(text) {
		var members map[string]any
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatal(err)
		}
		for name := range members {
			inFile[name] = true
		}
	}
	guide, err := os.ReadFile("../../receipts/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "| member of a line |")
	table, _, _ = strings.Cut(table, "\n\n")
	inGuide := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		inGuide[row[1]] = true
	}
	if !maps.Equal(inFile, inGuide) || len(inFile) != 10 {
		t.Errorf("a file has %v, the guide %v", slices.Sorted(maps.Keys(inFile)), slices.Sorted(maps.Keys(inGuide)))
	}
}

// A file that can't be read as receipts is refused, with the line.
func TestAFileOfSomethingElseIsRefused(t *testing.T) {
	t.Parallel()
	text, _, _ := threeCases(t)
	lines := strings.SplitAfter(text, "\n")[:9]
	for what, c := range map[string]struct{ text, word string }{
		"cut off":           {text[:len(text)-5], "line 9: the line is cut off"},
		"no JSON":           {lines[0] + "x\n", "line 2"},
		"another member":    {strings.Replace(text, `{"tenant"`, `{"note":1,"tenant"`, 1), "line 1"},
		"two objects":       {strings.TrimSuffix(lines[0], "\n") + lines[1], "line 1: there is more than one object"},
		"no tenant":         {strings.Replace(text, `"tenant":"acme"`, `"tenant":""`, 1), "line 1: tenant, case_id, sequence or link is missing"},
		"receipts swapped":  {lines[1] + lines[0], "line 2: receipts are not in the order"},
		"a receipt twice":   {lines[0] + lines[0], "line 2: receipts are not in the order"},
		"cases swapped":     {lines[3] + lines[0], "line 2: receipts are not in the order"},
		"tenants swapped":   {lines[6] + lines[0], "line 2: receipts are not in the order"},
		"an object of none": {"{}\n", "line 1"},
		"gzip":              {"\x1f\x8b\x08\x00\x00", "it is compressed with gzip; unpack it first"},
		"UTF-16":            {"\xff\xfe{\x00", "it is UTF-16; save it as UTF-8"},
	} {
		f, err := OpenFile(written(t, c.text))
		if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, %v", what, f, err)
		}
	}
	if _, err := OpenFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	a, err := Run(context.Background(), opened(t, ""), Query{})
	if err != nil || a.Receipts != 0 || !a.OK() {
		t.Errorf("an empty file: %+v, %v", a, err)
	}
	if a, err = Run(context.Background(), opened(t, "\ufeff"+strings.ReplaceAll(text, "\n", "\r\n")), Query{}); err != nil || a.Receipts != 9 || !a.OK() {
		t.Errorf("as another program saved it: %+v, %v", a, err)
	}
}
