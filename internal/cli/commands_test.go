package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func TestSubmitAnswersEveryLineAndABadOneStopsNothing(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	in := clitest.Line + "{\"tenant\":\n" + clitest.Line + clitest.LineFor("txr_2") + strings.Replace(clitest.Line, `"release"`, `"refund"`, 1) +
		strings.Repeat("x", intake.MaxLine+1) + "\n" + clitest.LineFor("txr_3")
	got := p.Run(in, "submit", "-", "--json")
	got.Check(t, "submit", 1, "3 lines not accepted")
	v := got.Object(t)
	replies := v["replies"].(map[string]any)
	if v["lines"] != 7.0 || v["bad_lines"] != 2.0 || replies["created"] != 3.0 || replies["deduplicated"] != 1.0 || replies["conflicting_adjudication"] != 1.0 {
		t.Errorf("%v", v)
	}
	if first := v["refused"].([]any)[0].(map[string]any); first["line"] != 2.0 || first["problem"] == "" {
		t.Errorf("%v", v["refused"])
	}
	if d := v["declined"].([]any)[0].(map[string]any); d["line"] != 5.0 || d["transaction_receipt_id"] != "txr_1" || d["run_id"] != p.RunOf("txr_1") {
		t.Errorf("%v", v["declined"])
	}
	file := filepath.Join(t.TempDir(), "in.jsonl")
	clitest.WriteFile(t, file, clitest.Line+clitest.LineFor("txr_2"))
	again := p.Run("", "submit", file)
	again.Check(t, "again", 0, "")
	if !strings.Contains(again.Out, "deduplicated") || strings.Contains(again.Out, "created") {
		t.Errorf("%s", again.Out)
	}
}

// A secret in any field of a line is refused and not shown. All that is wrong with the line is shown, also
// that its target is unknown.
func TestSubmitShowsNoSecretOfALine(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	got := p.Run(strings.Replace(clitest.LineFor("4111 1111 1111 1111"), "{", `{"target":"4111.1111.1111.1111",`, 1), "submit", "-", "--json")
	got.Check(t, "submit", 1, "1 line not accepted")
	v := got.Object(t)
	if refused := v["refused"].([]any); v["bad_lines"] != 1.0 || len(refused) != 3 || !strings.Contains(got.Out, "must be a configured target") || refused[0].(map[string]any)["line"] != 1.0 || strings.Contains(got.Out, "1111") {
		t.Errorf("%s", got.Out)
	}
}

// A line that is refused for its escrow shows no conflicting run.
func TestSubmitNamesARunOnlyWhereOneIsInTheWay(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	other := strings.Replace(clitest.LineFor("txr_2"), `"held":{"minor":`, `"held":{"minor":9`, 1)
	got := p.Run(other, "submit", "-", "--json")
	got.Check(t, "submit", 1, "1 line not accepted")
	if d := got.Object(t)["declined"].([]any)[0].(map[string]any); d["reply"] != "escrow_mismatch" || d["run_id"] != nil {
		t.Errorf("%v", d)
	}
	if shown := p.Run(other, "submit", "-").Out; !strings.Contains(shown, "escrow_mismatch") || strings.Contains(shown, "00000000-") {
		t.Error(shown)
	}
}

// A line that was accepted and then superseded does not fail a script. One that was cancelled does,
// and the answer has the actor.
func TestSubmitAgainAnswersWhatBecameOfALine(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	run := p.RunOf("txr_1")
	p.Run("", "cancel", "--tenant", "acme", "--actor", "user:ada", "--reason", "a fraud", run).Check(t, "cancel", 0, "")
	again := p.Run(clitest.Line, "submit", "-")
	again.Check(t, "again", 1, "1 line not accepted")
	if !strings.Contains(again.Out, "cancelled by user:ada: a fraud") {
		t.Error(again.Out)
	}
	second := strings.Replace(clitest.Line, `"outcome"`, `"generation":2,"outcome"`, 1)
	p.Run(second, "submit", "-").Check(t, "a higher generation", 0, "")
	last := p.Run(clitest.Line, "submit", "-")
	last.Check(t, "superseded", 0, "")
	if !strings.Contains(last.Out, "superseded") {
		t.Error(last.Out)
	}
}

// A line whose values Postgres refuses is reported as a bad line; those before and behind it are submitted.
func TestSubmitGoesOnBehindALineThatCanNotBeStored(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	if _, err := testkit.OpenAsOwner(t, p.URL).Exec(`INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta) SELECT id, gen_random_uuid(), 1, 9223372036854775807 FROM recourse.escrows`); err != nil {
		t.Fatal(err)
	}
	elsewhere := func(id string) string { return strings.ReplaceAll(clitest.LineFor(id), "esc_1", "esc_"+id) }
	got := p.Run(elsewhere("txr_2")+clitest.LineFor("txr_3")+elsewhere("txr_4"), "submit", "-", "--json")
	got.Check(t, "submit", 1, "1 line not accepted")
	v := got.Object(t)
	if replies := v["replies"].(map[string]any); replies["created"] != 2. || v["bad_lines"] != 1. || !strings.Contains(got.Out, "out of range") {
		t.Errorf("%v", v)
	}
}

func TestSubmitTakesFilesLongerThanAChunk(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	var in strings.Builder
	for i := range 1203 {
		in.WriteString(strings.ReplaceAll(strings.ReplaceAll(clitest.Line, "esc_1", "esc_"+strings.Repeat("x", i%7)), "txr_1", "txr_"+string(rune('a'+i%26))+strings.Repeat("y", i/26)))
	}
	got := p.Run(strings.ReplaceAll(in.String(), `"minor":12500`, `"minor":1`), "submit", "-", "--json")
	got.Check(t, "submit", 0, "")
	if v := got.Object(t); v["lines"] != 1203.0 || v["replies"].(map[string]any)["created"] != 1203.0 {
		t.Errorf("%v", v)
	}
}

func TestStatusShowsARunAndItsTransaction(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	byTransaction := p.Run("", "status", "txr_1", "--tenant", "acme", "--json")
	byTransaction.Check(t, "status", 0, "")
	v := byTransaction.Object(t)
	run := v["runs"].([]any)[0].(map[string]any)
	if v["settlement_progression_status"] != "approved-for-settlement" || v["reserved"] != 12500.0 || run["state"] != "pending" || len(v["attempts"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
	byRun := p.Run("", "status", run["run_id"].(string), "--tenant", "acme", "--json")
	if byRun.Out != byTransaction.Out {
		t.Errorf("%s\n%s", byRun.Out, byTransaction.Out)
	}
	forPeople := p.Run("", "status", "txr_1", "--tenant", "acme")
	for _, word := range []string{"125.00 USD", "approved-for-settlement", "pending", "esc_1"} {
		if !strings.Contains(forPeople.Out, word) {
			t.Errorf("%q is not in %s", word, forPeople.Out)
		}
	}
	for _, who := range []string{"txr_1", run["run_id"].(string)} {
		p.Run("", "status", who, "--tenant", "other").Check(t, "foreign tenant", 1, "tenant other has no")
	}
	p.Run("", "status", "txr_9", "--tenant", "acme").Check(t, "unknown", 1, "has no txr_9")
}

func TestCancelEndsARunOnceAndKeepsWhoAndWhy(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	v := p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)
	run := v["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	cancel := func(tenant string) clitest.Result {
		return p.Run("", "cancel", run, "--tenant", tenant, "--actor", "clerk", "--reason", "sent in error", "--json")
	}
	cancel("other").Check(t, "foreign tenant", 1, "has no run")
	got := cancel("acme")
	got.Check(t, "cancel", 0, "")
	if v := got.Object(t); v["state"] != "cancelled" {
		t.Errorf("%v", v)
	}
	list := p.Run("", "receipts", "list", "--tenant", "acme", "--run", run)
	list.Check(t, "list", 0, "")
	if !strings.Contains(list.Out, "clerk") || !strings.Contains(list.Out, "sent in error") {
		t.Errorf("%s", list.Out)
	}
	p.Run("", "cancel", run, "--tenant", "acme", "--actor", strings.Repeat("x", 200), "--reason", "y").Check(t, "long actor", 2, "actor")
}

func TestReceiptsAreListedInOrderAndInPages(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	v := p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)
	run := v["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	p.Run("", "cancel", run, "--tenant", "acme", "--actor", "clerk", "--reason", "error").Check(t, "cancel", 0, "")
	list := func(args ...string) ([]any, bool) {
		got := p.Run("", append([]string{"receipts", "list", "--tenant", "acme", "--json"}, args...)...)
		got.Check(t, "list", 0, "")
		v := got.Object(t)
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
	for _, args := range [][]string{{"--transaction", "txr_9"}, {"--case", clitest.AnyRun}, {"--run", clitest.AnyRun}} {
		p.Run("", append([]string{"receipts", "list", "--tenant", "acme"}, args...)...).Check(t, args[0], 1, "has no")
	}
	p.Run("", "receipts", "list", "--tenant", "other", "--case", v["case_id"].(string)).Check(t, "foreign tenant", 1, "has no")
	p.Run("", "receipts", "list", "--tenant", "acme", "--run", "nonsense").Check(t, "bad id", 2, "not a run id")
}

func TestVerifyFindsACutTailByHeadsAndAForgedBodyWithout(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	heads := filepath.Join(t.TempDir(), "heads")
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	verify := func(args ...string) clitest.Result {
		return p.Run("", append([]string{"receipts", "verify", "--tenant", "acme", "--json"}, args...)...)
	}
	verify("--save-heads", heads).Check(t, "save", 0, "")
	v := p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)
	run := v["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	p.Run("", "cancel", run, "--tenant", "acme", "--actor", "clerk", "--reason", "error").Check(t, "cancel", 0, "")
	grown := verify("--heads", heads)
	grown.Check(t, "a trail that grew", 0, "")
	if v := grown.Object(t); v["ok"] != true || v["heads_compared"] != 1.0 || v["receipts"] != 2.0 || v["chains_verified"] != 1.0 {
		t.Errorf("%v", v)
	}
	everybody := func(args ...string) clitest.Result {
		return p.Run("", append([]string{"receipts", "verify", "--all-tenants", "--json"}, args...)...)
	}
	everybody("--save-heads", heads+".all").Check(t, "save everybody's", 0, "")
	if v := everybody("--heads", heads+".all").Object(t); v["ok"] != true || v["heads_compared"] != 1.0 {
		t.Errorf("%v", v)
	}
	verify("--save-heads", heads).Check(t, "save again", 2, "exists: name another file, or give --force to replace it")
	verify("--heads", heads).Check(t, "the heads are those of before", 0, "")
	verify("--save-heads", heads, "--force").Check(t, "replace them", 0, "")
	p.Run("", "receipts", "verify", "--tenant", "other", "--heads", heads).Check(t, "heads of another tenant", 2, "heads of 1 case of other tenants (acme): use --all-tenants")
	clitest.WriteFile(t, heads+".none", "recourse heads 1\n")
	verify("--heads", heads+".none").Check(t, "no heads", 2, "has no heads")
	const nowhere = "019a0000-0000-7000-8000-000000000000"
	clitest.WriteFile(t, heads+".nowhere", "recourse heads 1\n"+nowhere+" 3 "+strings.Repeat("A", 43)+"=\n")
	verify("--heads", heads+".nowhere").Check(t, "the head of a case that is nowhere", 1, "broken")
	verify("--heads", heads+".nowhere", "--transaction", "txr_1").Check(t, "no head of the case", 2, "has no head of case")
	one := verify("--heads", heads, "--transaction", "txr_1")
	one.Check(t, "one case", 0, "")
	if v := one.Object(t); v["invariants"].(map[string]any)["the order of events has every receipt once and nothing else"] != "not checked for one case" || v["heads_compared"] != 1.0 {
		t.Errorf("%v", v)
	}
	p.Run(clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit another", 0, "")
	if shown := p.Run("", "receipts", "verify", "--tenant", "acme", "--heads", heads); shown.Code != 0 || !strings.Contains(shown.Out, "1 saved head compared, 1 trail without a saved head") {
		t.Errorf("%+v", shown)
	}
	if shown := p.Run("", "receipts", "verify", "--tenant", "acme", "--transaction", "txr_1"); shown.Code != 0 || !strings.Contains(shown.Out, "not checked for one case") || !strings.Contains(shown.Out, "No heads were compared") {
		t.Errorf("%+v", shown)
	}

	p.Exec(`ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`, `GRANT ALL ON recourse.receipts TO CURRENT_USER`)
	sick := p.Run("", "doctor", "--json")
	sick.Check(t, "doctor", 1, "a check failed")
	if !strings.Contains(sick.Out, "receipts.append_only") {
		t.Errorf("%s", sick.Out)
	}
	p.Exec(`DELETE FROM recourse.receipts WHERE seq = 2`)
	everybody("--heads", heads+".all").Check(t, "a cut tail among everybody's", 1, "broken")
	cut := verify("--heads", heads)
	cut.Check(t, "a cut tail", 1, "broken")
	if v := cut.Object(t); v["ok"] != false || !strings.Contains(v["invariants"].(map[string]any)["no trail is cut off or rewritten before its expected head"].(string), "ends at 1, the saved head is at 2") {
		t.Errorf("%v", v)
	}
	p.Exec(`UPDATE recourse.receipts SET body = replace(body, '12500', '12501') WHERE seq = 1`)
	forged := verify("--save-heads", heads+".forged")
	forged.Check(t, "a forged body", 1, "broken")
	if v := forged.Object(t); v["ok"] != false || v["chains_verified"] != 0.0 {
		t.Errorf("%v", v)
	}
	if _, err := os.Stat(heads + ".forged"); !os.IsNotExist(err) || !strings.Contains(forged.Err, "was not written") {
		t.Errorf("heads of a broken trail were saved: %v", err)
	}
	if shown := p.Run("", "receipts", "verify", "--all-tenants"); shown.Code != 1 || !strings.Contains(shown.Out, "BROKEN") {
		t.Errorf("%+v", shown)
	}
}
