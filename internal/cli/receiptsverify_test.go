package cli_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// All breaks are listed, for people and for programs, and one case can be verified alone.
func TestVerifyListsEverythingThatIsBroken(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	second := strings.NewReplacer("txr_1", "txr_2", "esc_1", "esc_2", "adj_1", "adj_2", "sub_1", "sub_2").Replace(clitest.Line)
	p.Run(clitest.Line+second, "submit", "-").Check(t, "submit", 0, "")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_2").Check(t, "one case", 0, "")
	p.Exec(`UPDATE recourse.runs SET due_at = due_at + interval '1 day', reason = 'x'`)
	all := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	all.Check(t, "all", 1, "broken")
	breaks := all.Object(t)["breaks"].([]any)
	cases := map[any]bool{}
	for _, b := range breaks {
		b := b.(map[string]any)
		if b["tenant"] != "acme" || b["run_id"] == nil || !strings.Contains(b["what"].(string), "due time") {
			t.Errorf("%v", b)
		}
		cases[b["case_id"]] = true
	}
	if len(breaks) != 2 || len(cases) != 2 || all.Object(t)["breaks_in_all"] != 2.0 {
		t.Errorf("%v", breaks)
	}
	people := p.Run("", "receipts", "verify", "--tenant", "acme")
	people.Check(t, "for people", 1, "broken")
	for caseID := range cases {
		if !strings.Contains(people.Out, caseID.(string)) {
			t.Errorf("case %v is not listed: %s", caseID, people.Out)
		}
	}
	caseID := breaks[0].(map[string]any)["case_id"].(string)
	one := p.Run("", "receipts", "verify", "--tenant", "acme", "--case", caseID, "--json")
	one.Check(t, "one case", 1, "broken")
	if v := one.Object(t); v["cases"] != 1.0 || len(v["breaks"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	p.Run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_9").Check(t, "no such case", 1, "tenant acme has no transaction txr_9")
	for _, args := range [][]string{{"--case", caseID, "--transaction", "txr_1"}, {"--case", caseID, "--save-heads", "x"}, {"--case", caseID, "--archive", "/no/such/directory"}, {"--archive", "/no/such/directory"}} {
		p.Run("", append([]string{"receipts", "verify", "--tenant", "acme"}, args...)...).Check(t, strings.Join(args, " "), 2, "")
	}
	p.Run("", "receipts", "verify", "--all-tenants", "--case", caseID).Check(t, "whose case", 2, "need --tenant")
	none := p.Run("", "receipts", "verify", "--tenant", "nobody", "--json")
	none.Check(t, "a tenant of whom there is nothing", 1, "tenant nobody has no receipts")
	if v := none.Object(t); v["ok"] != false || strings.Contains(none.Out, `"ok",`) {
		t.Errorf("%v", v)
	}
	if shown := p.Run("", "receipts", "verify", "--tenant", "nobody"); shown.Code != 1 || strings.Contains(shown.Out, "ok ") || !strings.Contains(shown.Out, "not checked: there are no receipts") {
		t.Errorf("%d: %s", shown.Code, shown.Out)
	}
	for _, of := range [][]string{nil, {"--case", caseID}} {
		args := append([]string{"receipts", "verify", "--tenant", "acme", "--archive", t.TempDir(), "--json"}, of...)
		if v := p.Run("", args...).Object(t); v["archive"].(map[string]any)["files"] != 0.0 {
			t.Errorf("%v", v)
		}
	}
}

// A case with a saved head that is missing, or was moved to another tenant, is a break, whether
// the case or its tenant is verified.
func TestACaseInTheHeadsThatIsGoneOrMovedIsABreak(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line+strings.NewReplacer("txr_1", "txr_2", "esc_1", "esc_2", "adj_1", "adj_2", "sub_1", "sub_2").Replace(clitest.Line), "submit", "-").Check(t, "submit", 0, "")
	heads := filepath.Join(t.TempDir(), "heads")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--save-heads", heads).Check(t, "save", 0, "")
	db := testkit.OpenAsOwner(t, p.URL)
	var caseID string
	if err := db.QueryRow(`SELECT id FROM recourse.cases WHERE subject = 'txr_1'`).Scan(&caseID); err != nil {
		t.Fatal(err)
	}
	of := ` WHERE case_id = '` + caseID + `'`
	broken := func(what, word string, args ...string) {
		t.Helper()
		got := p.Run("", append([]string{"receipts", "verify", "--tenant", "acme", "--heads", heads, "--json"}, args...)...)
		got.Check(t, what, 1, "broken")
		for _, b := range got.Object(t)["breaks"].([]any) {
			b := b.(map[string]any)
			if b["case_id"] == caseID && b["invariant"] == audit.InvariantHeads && strings.Contains(b["what"].(string), word) {
				if b["tenant"] != "acme" || !strings.HasPrefix(b["stored"].(string), "0 ") || !strings.HasPrefix(b["expected"].(string), "1 ") {
					t.Errorf("%s: %v", what, b)
				}
				return
			}
		}
		t.Errorf("%s: %s", what, got.Out)
	}
	testkit.Tamper(t, db, `UPDATE recourse.receipts SET tenant = 'other'`+of, `UPDATE recourse.runs SET tenant = 'other'`+of,
		`UPDATE recourse.escrows SET tenant = 'other' WHERE id = (SELECT escrow_id FROM recourse.cases WHERE id = '`+caseID+`')`, `UPDATE recourse.cases SET tenant = 'other' WHERE id = '`+caseID+`'`)
	broken("moved", "stored under tenant other")
	broken("moved, alone", "stored under tenant other", "--case", caseID)
	testkit.Tamper(t, db, `DELETE FROM recourse.receipts`+of, `DELETE FROM recourse.operations`+of, `DELETE FROM recourse.runs`+of, `DELETE FROM recourse.cases WHERE id = '`+caseID+`'`)
	broken("gone", "the trail ends at 0, the saved head is at 1")
	broken("gone, alone", "the trail ends at 0, the saved head is at 1", "--case", caseID)
	p.Run("", "receipts", "verify", "--tenant", "acme", "--case", caseID).Check(t, "without heads", 1, "has no case")
}

// Of a database without receipts there is nothing to note, and of a case that a file lacks only what a file
// can show is said to hold.
func TestVerifyClaimsNothingOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	dir := t.TempDir()
	heads, file := filepath.Join(dir, "heads"), filepath.Join(dir, "all.jsonl")
	empty := p.Run("", "receipts", "verify", "--all-tenants", "--save-heads", heads)
	empty.Check(t, "an empty database", 0, "was not written: there are no receipts")
	if _, err := os.Stat(heads); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(empty.Out, "There are no receipts.") {
		t.Errorf("%v: %s", err, empty.Out)
	}
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	p.Run("", "receipts", "export", "--all-tenants", file).Check(t, "export", 0, "")
	p.Run(clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 0, "")
	p.Run("", "receipts", "verify", "--all-tenants", "--save-heads", heads).Check(t, "save", 0, "")
	missing := caseOf(t, p, "txr_2")
	got := p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file, "--case", missing, "--heads", heads, "--json")
	got.Check(t, "a case that is not in the file", 1, "broken")
	for name, verdict := range got.Object(t)["invariants"].(map[string]any) {
		if verdict == "ok" && name != audit.InvariantChains {
			t.Errorf("%s is said to be ok", name)
		}
	}
}

// caseOf returns the case of a transaction.
func caseOf(t *testing.T, p *clitest.Environment, transaction string) (id string) {
	t.Helper()
	if err := testkit.OpenAsOwner(t, p.URL).QueryRow(`SELECT id FROM recourse.cases WHERE subject = $1`, transaction).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// What was found before an error ended a verification is listed, and claims nothing of the rest.
func TestVerifyListsWhatItFoundBeforeAnError(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line+clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 0, "")
	auditorOf(t, p)
	p.Exec(`REVOKE SELECT ON recourse.people FROM auditor_testverifylistswhatitfoundbeforeanerror`) // it is read after the cases
	heads := filepath.Join(t.TempDir(), "heads")
	verify := func(what string) map[string]any {
		t.Helper()
		got := p.Run("", "receipts", "verify", "--tenant", "acme", "--save-heads", heads, "--json")
		got.Check(t, what, 1, "permission denied")
		v := got.Object(t)
		if v["ok"] != false || v["cases"] != 2.0 || !strings.Contains(v["ended_early"].(string), "people") || !strings.Contains(got.Err, "heads was not written") {
			t.Errorf("%s: %v, %s", what, v, got.Err)
		}
		for name, verdict := range v["invariants"].(map[string]any) {
			if verdict == "ok" {
				t.Errorf("%s: %s is said to be ok", what, name)
			}
		}
		if _, err := os.Stat(heads); !errors.Is(err, fs.ErrNotExist) || strings.Contains(got.Err, "an invariant is broken") != (v["breaks_in_all"] != 0.0) {
			t.Errorf("%s: %v, %s", what, err, got.Err)
		}
		return v
	}
	if v := verify("nothing was found"); v["breaks_in_all"] != 0.0 {
		t.Errorf("%v", v)
	}
	p.Exec(`UPDATE recourse.runs SET due_at = due_at + interval '1 day' WHERE id = '` + p.RunOf("txr_2") + `'`)
	v := verify("a break was found")
	if b := v["breaks"].([]any); len(b) != 1 || !strings.Contains(b[0].(map[string]any)["what"].(string), "due time") {
		t.Errorf("%v", b)
	}
	one := p.Run("", "receipts", "verify", "--tenant", "acme", "--case", caseOf(t, p, "txr_2"), "--json") // reads people only after the audit
	one.Check(t, "one case", 1, "permission denied")
	if b, _ := one.Object(t)["breaks"].([]any); len(b) != 1 {
		t.Errorf("one case: %s", one.Out)
	}
	people := p.Run("", "receipts", "verify", "--tenant", "acme")
	people.Check(t, "for people", 1, "permission denied")
	if !strings.Contains(people.Out, "ended early") || !strings.Contains(people.Out, "BROKEN") || !strings.Contains(people.Out, "due time") || strings.Count(people.Out, "not checked to the end") != len(audit.Invariants)-1 {
		t.Errorf("%s", people.Out)
	}
}
