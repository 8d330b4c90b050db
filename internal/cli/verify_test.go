package cli_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Everything that is broken is listed, for people and for programs, and one case can be
// checked alone.
func TestVerifyListsEverythingThatIsBroken(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	second := strings.NewReplacer("txr_1", "txr_2", "esc_1", "esc_2", "adj_1", "adj_2", "sub_1", "sub_2").Replace(line)
	p.run(line+second, "submit", "-").wants(t, "submit", 0, "")
	p.run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_2").wants(t, "one case", 0, "")
	p.exec(`UPDATE recourse.runs SET due_at = due_at + interval '1 day', reason = 'x'`)
	all := p.run("", "receipts", "verify", "--tenant", "acme", "--json")
	all.wants(t, "all", 1, "broken")
	breaks := all.object(t)["breaks"].([]any)
	cases := map[any]bool{}
	for _, b := range breaks {
		b := b.(map[string]any)
		if b["tenant"] != "acme" || b["run_id"] == nil || !strings.Contains(b["what"].(string), "due time") {
			t.Errorf("%v", b)
		}
		cases[b["case_id"]] = true
	}
	if len(breaks) != 2 || len(cases) != 2 || all.object(t)["breaks_in_all"] != 2.0 {
		t.Errorf("%v", breaks)
	}
	people := p.run("", "receipts", "verify", "--tenant", "acme")
	people.wants(t, "for people", 1, "broken")
	for kase := range cases {
		if !strings.Contains(people.out, kase.(string)) {
			t.Errorf("case %v is not listed: %s", kase, people.out)
		}
	}
	kase := breaks[0].(map[string]any)["case_id"].(string)
	one := p.run("", "receipts", "verify", "--tenant", "acme", "--case", kase, "--json")
	one.wants(t, "one case", 1, "broken")
	if v := one.object(t); v["cases"] != 1.0 || len(v["breaks"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	p.run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_9").wants(t, "no such case", 1, "tenant acme has no transaction txr_9")
	for _, args := range [][]string{{"--case", kase, "--transaction", "txr_1"}, {"--case", kase, "--save-heads", "x"}, {"--case", kase, "--archive", "/no/such/directory"}, {"--archive", "/no/such/directory"}} {
		p.run("", append([]string{"receipts", "verify", "--tenant", "acme"}, args...)...).wants(t, strings.Join(args, " "), 2, "")
	}
	p.run("", "receipts", "verify", "--all-tenants", "--case", kase).wants(t, "whose case", 2, "one tenant's")
	none := p.run("", "receipts", "verify", "--tenant", "nobody", "--json")
	none.wants(t, "a tenant of whom there is nothing", 1, "nothing of a tenant nobody")
	if v := none.object(t); v["ok"] != false {
		t.Errorf("%v", v)
	}
	for _, of := range [][]string{nil, {"--case", kase}} {
		args := append([]string{"receipts", "verify", "--tenant", "acme", "--archive", t.TempDir(), "--json"}, of...)
		if v := p.run("", args...).object(t); v["archive"].(map[string]any)["files"] != 0.0 {
			t.Errorf("%v", v)
		}
	}
}

// A noted case that is gone, or that was moved to another tenant, is a break, whether it is
// asked for alone or its tenant is.
func TestANotedCaseThatIsGoneOrMovedIsABreak(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line+strings.NewReplacer("txr_1", "txr_2", "esc_1", "esc_2", "adj_1", "adj_2", "sub_1", "sub_2").Replace(line), "submit", "-").wants(t, "submit", 0, "")
	heads := filepath.Join(t.TempDir(), "heads")
	p.run("", "receipts", "verify", "--tenant", "acme", "--save-heads", heads).wants(t, "save", 0, "")
	db, err := sql.Open("postgres", p.url)
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
		got := p.run("", append([]string{"receipts", "verify", "--tenant", "acme", "--heads", heads, "--json"}, args...)...)
		got.wants(t, what, 1, "broken")
		for _, b := range got.object(t)["breaks"].([]any) {
			b := b.(map[string]any)
			if b["case_id"] == kase && b["invariant"] == postadjudication.InvariantHeads && strings.Contains(b["what"].(string), word) {
				if b["tenant"] != "acme" || !strings.HasPrefix(b["stored"].(string), "0 ") || !strings.HasPrefix(b["expected"].(string), "1 ") {
					t.Errorf("%s: %v", what, b)
				}
				return
			}
		}
		t.Errorf("%s: %s", what, got.out)
	}
	testkit.Tamper(t, db, `UPDATE recourse.receipts SET tenant = 'other'`+of, `UPDATE recourse.runs SET tenant = 'other'`+of,
		`UPDATE recourse.escrows SET tenant = 'other' WHERE id = (SELECT escrow_id FROM recourse.cases WHERE id = '`+kase+`')`, `UPDATE recourse.cases SET tenant = 'other' WHERE id = '`+kase+`'`)
	broken("moved", "stored as that of tenant other")
	broken("moved, alone", "stored as that of tenant other", "--case", kase)
	testkit.Tamper(t, db, `DELETE FROM recourse.receipts`+of, `DELETE FROM recourse.operations`+of, `DELETE FROM recourse.runs`+of, `DELETE FROM recourse.cases WHERE id = '`+kase+`'`)
	broken("gone", "the trail ends at 0, 1 were noted")
	broken("gone, alone", "the trail ends at 0, 1 were noted", "--case", kase)
	p.run("", "receipts", "verify", "--tenant", "acme", "--case", kase).wants(t, "without heads", 1, "has no case")
}

// A list of dead letters is made anew where somebody says who asks and why.
func TestRebuildTellsWhatItMended(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	p.run("", "dlq", "rebuild", "--tenant", "acme").wants(t, "nobody asks", 2, "--actor and --reason")
	p.run("", "dlq", "rebuild", "--actor", "user:ada", "--reason", "r").wants(t, "whose", 2, "--tenant is missing")
	said := p.run("", "dlq", "rebuild", "--all-tenants", "--actor", "user:ada", "--reason", "rows are missing", "--json")
	said.wants(t, "all", 0, "")
	one := said.object(t)["tenants"].([]any)[0].(map[string]any)
	if one["tenant"] != "acme" || one["made"] != 0.0 || one["removed"] != 0.0 {
		t.Errorf("%v", one)
	}
	p.run("", "dlq", "rebuild", "--tenant", "acme", "--actor", "user:ada", "--reason", "rows are missing").wants(t, "for people", 0, "")
}
