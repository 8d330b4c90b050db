package cli_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Everything that is broken is listed, for people and for programs, and one case can be
// checked alone.
func TestVerifyListsEverythingThatIsBroken(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	second := strings.NewReplacer("txr_1", "txr_2", "esc_1", "esc_2", "adj_1", "adj_2", "sub_1", "sub_2").Replace(clitest.Line)
	p.Run(clitest.Line+second, "submit", "-").Wants(t, "submit", 0, "")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_2").Wants(t, "one case", 0, "")
	p.Exec(`UPDATE recourse.runs SET due_at = due_at + interval '1 day', reason = 'x'`)
	all := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	all.Wants(t, "all", 1, "broken")
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
	people.Wants(t, "for people", 1, "broken")
	for kase := range cases {
		if !strings.Contains(people.Out, kase.(string)) {
			t.Errorf("case %v is not listed: %s", kase, people.Out)
		}
	}
	kase := breaks[0].(map[string]any)["case_id"].(string)
	one := p.Run("", "receipts", "verify", "--tenant", "acme", "--case", kase, "--json")
	one.Wants(t, "one case", 1, "broken")
	if v := one.Object(t); v["cases"] != 1.0 || len(v["breaks"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	p.Run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_9").Wants(t, "no such case", 1, "tenant acme has no transaction txr_9")
	for _, args := range [][]string{{"--case", kase, "--transaction", "txr_1"}, {"--case", kase, "--save-heads", "x"}, {"--case", kase, "--archive", "/no/such/directory"}, {"--archive", "/no/such/directory"}} {
		p.Run("", append([]string{"receipts", "verify", "--tenant", "acme"}, args...)...).Wants(t, strings.Join(args, " "), 2, "")
	}
	p.Run("", "receipts", "verify", "--all-tenants", "--case", kase).Wants(t, "whose case", 2, "one tenant's")
	none := p.Run("", "receipts", "verify", "--tenant", "nobody", "--json")
	none.Wants(t, "a tenant of whom there is nothing", 1, "nothing of a tenant nobody")
	if v := none.Object(t); v["ok"] != false {
		t.Errorf("%v", v)
	}
	for _, of := range [][]string{nil, {"--case", kase}} {
		args := append([]string{"receipts", "verify", "--tenant", "acme", "--archive", t.TempDir(), "--json"}, of...)
		if v := p.Run("", args...).Object(t); v["archive"].(map[string]any)["files"] != 0.0 {
			t.Errorf("%v", v)
		}
	}
}

// A noted case that is gone, or that was moved to another tenant, is a break, whether it is
// asked for alone or its tenant is.
func TestANotedCaseThatIsGoneOrMovedIsABreak(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line+strings.NewReplacer("txr_1", "txr_2", "esc_1", "esc_2", "adj_1", "adj_2", "sub_1", "sub_2").Replace(clitest.Line), "submit", "-").Wants(t, "submit", 0, "")
	heads := filepath.Join(t.TempDir(), "heads")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--save-heads", heads).Wants(t, "save", 0, "")
	db, err := sql.Open("postgres", testkit.Owner(t, p.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var kase string
	if err := db.QueryRow(`SELECT id FROM recourse.cases WHERE subject = 'txr_1'`).Scan(&kase); err != nil {
		t.Fatal(err)
	}
	of := ` WHERE case_id = '` + kase + `'`
	broken := func(what, word string, args ...string) {
		t.Helper()
		got := p.Run("", append([]string{"receipts", "verify", "--tenant", "acme", "--heads", heads, "--json"}, args...)...)
		got.Wants(t, what, 1, "broken")
		for _, b := range got.Object(t)["breaks"].([]any) {
			b := b.(map[string]any)
			if b["case_id"] == kase && b["invariant"] == postadjudication.InvariantHeads && strings.Contains(b["what"].(string), word) {
				if b["tenant"] != "acme" || !strings.HasPrefix(b["stored"].(string), "0 ") || !strings.HasPrefix(b["expected"].(string), "1 ") {
					t.Errorf("%s: %v", what, b)
				}
				return
			}
		}
		t.Errorf("%s: %s", what, got.Out)
	}
	testkit.Tamper(t, db, `UPDATE recourse.receipts SET tenant = 'other'`+of, `UPDATE recourse.runs SET tenant = 'other'`+of,
		`UPDATE recourse.escrows SET tenant = 'other' WHERE id = (SELECT escrow_id FROM recourse.cases WHERE id = '`+kase+`')`, `UPDATE recourse.cases SET tenant = 'other' WHERE id = '`+kase+`'`)
	broken("moved", "stored as that of tenant other")
	broken("moved, alone", "stored as that of tenant other", "--case", kase)
	testkit.Tamper(t, db, `DELETE FROM recourse.receipts`+of, `DELETE FROM recourse.operations`+of, `DELETE FROM recourse.runs`+of, `DELETE FROM recourse.cases WHERE id = '`+kase+`'`)
	broken("gone", "the trail ends at 0, 1 were noted")
	broken("gone, alone", "the trail ends at 0, 1 were noted", "--case", kase)
	p.Run("", "receipts", "verify", "--tenant", "acme", "--case", kase).Wants(t, "without heads", 1, "has no case")
}
