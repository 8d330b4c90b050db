package cli_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *place) exec(statements ...string) {
	p.t.Helper()
	db, err := sql.Open("postgres", p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			p.t.Fatal(err)
		}
	}
}

func TestSubmitAnswersEveryLineAndABadOneStopsNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	in := line + "{\"tenant\":\n" + line + another("txr_2") + strings.Replace(line, `"release"`, `"refund"`, 1) +
		strings.Repeat("x", intake.MaxLine+1) + "\n" + another("txr_3")
	got := p.run(in, "submit", "-", "--json")
	got.wants(t, "submit", 1, "3 lines not accepted")
	v := got.object(t)
	replies := v["replies"].(map[string]any)
	if v["lines"] != 7.0 || v["bad_lines"] != 2.0 || replies["created"] != 3.0 || replies["deduplicated"] != 1.0 || replies["conflicting_adjudication"] != 1.0 {
		t.Errorf("%v", v)
	}
	if first := v["refused"].([]any)[0].(map[string]any); first["line"] != 2.0 || first["problem"] == "" {
		t.Errorf("%v", v["refused"])
	}
	if d := v["declined"].([]any)[0].(map[string]any); d["line"] != 5.0 || d["transaction_receipt_id"] != "txr_1" || d["run_id"] != p.runOf("txr_1") {
		t.Errorf("%v", v["declined"])
	}
	file := filepath.Join(t.TempDir(), "in.jsonl")
	writeFile(t, file, line+another("txr_2"))
	again := p.run("", "submit", file)
	again.wants(t, "again", 0, "")
	if !strings.Contains(again.out, "deduplicated") || strings.Contains(again.out, "created") {
		t.Errorf("%s", again.out)
	}
}

// A secret in a line is refused by each of its fields, and is not shown.
func TestSubmitShowsNoSecretOfALine(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	got := p.run(strings.Replace(another("4111 1111 1111 1111"), "{", `{"target":"4111.1111.1111.1111",`, 1), "submit", "-", "--json")
	got.wants(t, "submit", 1, "1 line not accepted")
	v := got.object(t)
	if refused := v["refused"].([]any); v["bad_lines"] != 1.0 || len(refused) < 2 || refused[0].(map[string]any)["line"] != 1.0 || strings.Contains(got.out, "1111") {
		t.Errorf("%s", got.out)
	}
}

// runOf is the first run of a transaction.
func (p *place) runOf(transaction string) string {
	p.t.Helper()
	return p.run("", "status", "--tenant", "acme", transaction, "--json").object(p.t)["runs"].([]any)[0].(map[string]any)["run_id"].(string)
}

// A line that is refused for its escrow has no run in its way, and none is made up.
func TestSubmitNamesARunOnlyWhereOneIsInTheWay(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	other := strings.Replace(another("txr_2"), `"held":{"minor":`, `"held":{"minor":9`, 1)
	got := p.run(other, "submit", "-", "--json")
	got.wants(t, "submit", 1, "1 line not accepted")
	if d := got.object(t)["declined"].([]any)[0].(map[string]any); d["reply"] != "escrow_mismatch" || d["run_id"] != nil {
		t.Errorf("%v", d)
	}
	if shown := p.run(other, "submit", "-").out; !strings.Contains(shown, "escrow_mismatch") || strings.Contains(shown, "00000000-") {
		t.Error(shown)
	}
}

// What was accepted before and superseded since is no failure of a script; what was
// cancelled is, and the answer says by whom.
func TestSubmitAgainTellsWhatBecameOfALine(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	run := p.runOf("txr_1")
	p.run("", "cancel", "--tenant", "acme", "--actor", "user:ada", "--reason", "a fraud", run).wants(t, "cancel", 0, "")
	again := p.run(line, "submit", "-")
	again.wants(t, "again", 1, "1 line not accepted")
	if !strings.Contains(again.out, "cancelled by user:ada: a fraud") {
		t.Error(again.out)
	}
	second := strings.Replace(line, `"outcome"`, `"generation":2,"outcome"`, 1)
	p.run(second, "submit", "-").wants(t, "a higher generation", 0, "")
	last := p.run(line, "submit", "-")
	last.wants(t, "superseded", 0, "")
	if !strings.Contains(last.out, "superseded") {
		t.Error(last.out)
	}
}

func TestSubmitTakesFilesLongerThanAChunk(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	var in strings.Builder
	for i := range 1203 {
		in.WriteString(strings.ReplaceAll(strings.ReplaceAll(line, "esc_1", "esc_"+strings.Repeat("x", i%7)), "txr_1", "txr_"+string(rune('a'+i%26))+strings.Repeat("y", i/26)))
	}
	got := p.run(strings.ReplaceAll(in.String(), `"minor":12500`, `"minor":1`), "submit", "-", "--json")
	got.wants(t, "submit", 0, "")
	if v := got.object(t); v["lines"] != 1203.0 || v["replies"].(map[string]any)["created"] != 1203.0 {
		t.Errorf("%v", v)
	}
}

func TestStatusTellsOfARunAndOfItsTransaction(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	byTransaction := p.run("", "status", "txr_1", "--tenant", "acme", "--json")
	byTransaction.wants(t, "status", 0, "")
	v := byTransaction.object(t)
	run := v["runs"].([]any)[0].(map[string]any)
	if v["settlement_progression_status"] != "approved-for-settlement" || v["reserved"] != 12500.0 || run["state"] != "pending" || len(v["attempts"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
	byRun := p.run("", "status", run["run_id"].(string), "--tenant", "acme", "--json")
	if byRun.out != byTransaction.out {
		t.Errorf("%s\n%s", byRun.out, byTransaction.out)
	}
	forPeople := p.run("", "status", "txr_1", "--tenant", "acme")
	for _, word := range []string{"125.00 USD", "approved-for-settlement", "pending", "esc_1"} {
		if !strings.Contains(forPeople.out, word) {
			t.Errorf("%q is not in %s", word, forPeople.out)
		}
	}
	for _, who := range []string{"txr_1", run["run_id"].(string)} {
		p.run("", "status", who, "--tenant", "other").wants(t, "foreign tenant", 1, "tenant other has no")
	}
	p.run("", "status", "txr_9", "--tenant", "acme").wants(t, "unknown", 1, "has no txr_9")
}

func TestCancelEndsARunOnceAndKeepsWhoAndWhy(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	v := p.run("", "status", "txr_1", "--tenant", "acme", "--json").object(t)
	run := v["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	cancel := func(tenant string) said {
		return p.run("", "cancel", run, "--tenant", tenant, "--actor", "clerk", "--reason", "sent in error", "--json")
	}
	cancel("other").wants(t, "foreign tenant", 1, "has no run")
	got := cancel("acme")
	got.wants(t, "cancel", 0, "")
	if v := got.object(t); v["state"] != "cancelled" {
		t.Errorf("%v", v)
	}
	list := p.run("", "receipts", "list", "--tenant", "acme", "--run", run)
	list.wants(t, "list", 0, "")
	if !strings.Contains(list.out, "clerk") || !strings.Contains(list.out, "sent in error") {
		t.Errorf("%s", list.out)
	}
	p.run("", "cancel", run, "--tenant", "acme", "--actor", strings.Repeat("x", 200), "--reason", "y").wants(t, "long actor", 2, "actor")
}

func TestReceiptsAreListedInOrderAndInPages(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	v := p.run("", "status", "txr_1", "--tenant", "acme", "--json").object(t)
	run := v["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	p.run("", "cancel", run, "--tenant", "acme", "--actor", "clerk", "--reason", "error").wants(t, "cancel", 0, "")
	list := func(args ...string) ([]any, bool) {
		got := p.run("", append([]string{"receipts", "list", "--tenant", "acme", "--json"}, args...)...)
		got.wants(t, "list", 0, "")
		v := got.object(t)
		return v["receipts"].([]any), v["more"].(bool)
	}
	all, more := list("--case", v["case_id"].(string))
	if len(all) != 2 || more || all[0].(map[string]any)["body"].(map[string]any)["subtype"] != "submitted" {
		t.Errorf("%v", all)
	}
	if first, more := list("--transaction", "txr_1", "--limit", "1"); len(first) != 1 || !more {
		t.Errorf("%v %v", first, more)
	}
	if rest, more := list("--run", run, "--after", "1"); len(rest) != 1 || more || rest[0].(map[string]any)["seq"] != 2.0 {
		t.Errorf("%v %v", rest, more)
	}
	for _, args := range [][]string{{"--transaction", "txr_9"}, {"--case", anyRun}, {"--run", anyRun}} {
		p.run("", append([]string{"receipts", "list", "--tenant", "acme"}, args...)...).wants(t, args[0], 1, "has no")
	}
	p.run("", "receipts", "list", "--tenant", "other", "--case", v["case_id"].(string)).wants(t, "foreign tenant", 1, "has no")
	p.run("", "receipts", "list", "--tenant", "acme", "--run", "nonsense").wants(t, "bad id", 2, "no run id")
}

func TestVerifyFindsACutTailByHeadsAndAForgedBodyWithout(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	heads := filepath.Join(t.TempDir(), "heads")
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	verify := func(args ...string) said {
		return p.run("", append([]string{"receipts", "verify", "--tenant", "acme", "--json"}, args...)...)
	}
	verify("--save-heads", heads).wants(t, "save", 0, "")
	v := p.run("", "status", "txr_1", "--tenant", "acme", "--json").object(t)
	run := v["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	p.run("", "cancel", run, "--tenant", "acme", "--actor", "clerk", "--reason", "error").wants(t, "cancel", 0, "")
	grown := verify("--heads", heads)
	grown.wants(t, "a trail that grew", 0, "")
	if v := grown.object(t); v["ok"] != true || v["heads_compared"] != 1.0 || v["receipts"] != 2.0 || v["chains_verified"] != 1.0 {
		t.Errorf("%v", v)
	}
	everybody := func(args ...string) said {
		return p.run("", append([]string{"receipts", "verify", "--all-tenants", "--json"}, args...)...)
	}
	everybody("--save-heads", heads+".all").wants(t, "save everybody's", 0, "")
	if v := everybody("--heads", heads+".all").object(t); v["ok"] != true || v["heads_compared"] != 1.0 {
		t.Errorf("%v", v)
	}
	verify("--save-heads", heads).wants(t, "save again", 0, "")
	p.run("", "receipts", "verify", "--tenant", "other", "--heads", heads).wants(t, "heads of another tenant", 2, "heads of 1 case of other tenants (acme): compare it by --all-tenants")
	writeFile(t, heads+".none", "recourse heads 1\n")
	verify("--heads", heads+".none").wants(t, "no heads", 2, "holds no heads")
	const nowhere = "019a0000-0000-7000-8000-000000000000"
	writeFile(t, heads+".nowhere", "recourse heads 1\n"+nowhere+" 3 "+strings.Repeat("A", 43)+"=\n")
	verify("--heads", heads+".nowhere").wants(t, "the head of a case that is nowhere", 1, "broken")
	verify("--heads", heads+".nowhere", "--transaction", "txr_1").wants(t, "no head of the case", 2, "holds no head of case")
	one := verify("--heads", heads, "--transaction", "txr_1")
	one.wants(t, "one case", 0, "")
	if v := one.object(t); v["invariants"].(map[string]any)["the order of events has no gap and no stranger"] != "not checked for one case" || v["heads_compared"] != 1.0 {
		t.Errorf("%v", v)
	}
	p.run(another("txr_2"), "submit", "-").wants(t, "submit another", 0, "")
	if shown := p.run("", "receipts", "verify", "--tenant", "acme", "--heads", heads); shown.code != 0 || !strings.Contains(shown.out, "1 noted head compared, 1 trail without a noted head") {
		t.Errorf("%+v", shown)
	}
	if shown := p.run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_1"); shown.code != 0 || !strings.Contains(shown.out, "not checked for one case") || !strings.Contains(shown.out, "No heads were compared") {
		t.Errorf("%+v", shown)
	}

	p.exec(`ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`, `GRANT ALL ON recourse.receipts TO CURRENT_USER`)
	sick := p.run("", "doctor", "--json")
	sick.wants(t, "doctor", 1, "wrong")
	if !strings.Contains(sick.out, "receipts.append_only") {
		t.Errorf("%s", sick.out)
	}
	p.exec(`DELETE FROM recourse.receipts WHERE seq = 2`)
	everybody("--heads", heads+".all").wants(t, "a cut tail among everybody's", 1, "broken")
	cut := verify("--heads", heads)
	cut.wants(t, "a cut tail", 1, "broken")
	if v := cut.object(t); v["ok"] != false || !strings.Contains(v["invariants"].(map[string]any)["no trail is cut off or rewritten before its expected head"].(string), "ends at 1, 2 were noted") {
		t.Errorf("%v", v)
	}
	p.exec(`UPDATE recourse.receipts SET body = replace(body, '12500', '12501') WHERE seq = 1`)
	forged := verify("--save-heads", heads+".forged")
	forged.wants(t, "a forged body", 1, "broken")
	if v := forged.object(t); v["ok"] != false || v["chains_verified"] != 0.0 {
		t.Errorf("%v", v)
	}
	if _, err := os.Stat(heads + ".forged"); !os.IsNotExist(err) || !strings.Contains(forged.err, "no heads were noted") {
		t.Errorf("heads of a broken trail were saved: %v", err)
	}
	if shown := p.run("", "receipts", "verify", "--all-tenants"); shown.code != 1 || !strings.Contains(shown.out, "BROKEN") {
		t.Errorf("%+v", shown)
	}
}
