package cli_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// auditorOf creates a role that may only read the schema, and makes it the role of the commands.
func auditorOf(t *testing.T, p *clitest.Environment) (asAuditor *sql.DB) {
	t.Helper()
	name := "auditor_" + strings.ToLower(strings.NewReplacer("/", "_", "-", "_").Replace(t.Name()))
	p.Exec(`DROP ROLE IF EXISTS `+name, `CREATE ROLE `+name+` LOGIN PASSWORD 'reads'`, `GRANT USAGE ON SCHEMA recourse TO `+name, `GRANT SELECT ON ALL TABLES IN SCHEMA recourse TO `+name)
	t.Cleanup(func() { p.Exec(`DROP OWNED BY `+name, `DROP ROLE `+name) })
	p.Env[app.DatabaseVariable] = testkit.As(t, testkit.Owner(t, p.URL), url.UserPassword(name, "reads"))
	db, err := sql.Open("postgres", p.Env[app.DatabaseVariable])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// An auditor needs SELECT and nothing else, also while triggers are off, and finds what was
// changed.
func TestVerifyNeedsSelectOnly(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line+clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 0, "")
	p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "auditor", "--actor", "root", "--reason", "r").Check(t, "keys create", 0, "")
	p.OnePerson()
	db := auditorOf(t, p)
	delete(p.Env, app.RedisVariable)
	for _, write := range []string{`DELETE FROM recourse.annotations`, `UPDATE recourse.runs SET due_at = due_at`, `INSERT INTO recourse.people (tenant, people, actor, reason, at) VALUES ('x', 1, 'x', 'x', now())`, `CREATE TABLE recourse.own ()`} {
		if _, err := db.Exec(write); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Fatalf("the auditor may do this: %s: %v", write, err)
		}
	}
	heads := filepath.Join(t.TempDir(), "heads")
	for _, args := range []string{
		"--all-tenants --save-heads " + heads, "--tenant acme", "--tenant acme --transaction txr_1", "--all-tenants --heads " + heads, "--tenant acme --archive " + t.TempDir(),
	} {
		got := p.Run("", append([]string{"receipts", "verify", "--json"}, strings.Fields(args)...)...)
		got.Check(t, args, 0, "")
		if v := got.Object(t); v["ok"] != true || v["cases"] == 0.0 || v["people_1"].([]any)[0] != "acme" {
			t.Errorf("%s: %v", args, v)
		}
	}
	p.Exec(`ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`)
	off := p.Run("", "receipts", "verify", "--all-tenants", "--json")
	off.Check(t, "triggers are off", 0, "")
	if v := off.Object(t); v["ok"] != true || len(v["guards_off"].([]any)) != 1 || v["guards_off"].([]any)[0] != "receipts.append_only" {
		t.Errorf("%v", v)
	}
	unsaved := heads + ".off"
	p.Run("", "receipts", "verify", "--all-tenants", "--save-heads", unsaved).Check(t, "heads while triggers are off", 1, "was not written: what protects evidence")
	if _, err := os.Stat(unsaved); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("heads were saved while triggers are off: %v", err)
	}
	p.Exec(`UPDATE recourse.receipts SET actor = 'user:eve' WHERE seq = 1 AND case_id = (SELECT id FROM recourse.cases WHERE subject = 'txr_2')`)
	for _, args := range [][]string{{"--all-tenants"}, {"--tenant", "acme", "--transaction", "txr_2"}} {
		broken := p.Run("", append([]string{"receipts", "verify", "--json"}, args...)...)
		broken.Check(t, "an edited receipt", 1, "broken")
		if b := broken.Object(t)["breaks"].([]any); len(b) != 1 || b[0].(map[string]any)["stored"] != "user:eve" {
			t.Errorf("%v", b)
		}
	}
	p.Exec(`REVOKE ALL ON SCHEMA recourse FROM PUBLIC`, `REVOKE SELECT ON recourse.schema_version FROM `+"auditor_testverifyneedsselectonly")
	p.Run("", "receipts", "verify", "--all-tenants").Check(t, "a role that may not read", 4, "may not read")
}

// Receipts are exported with SELECT only, and verified from the file without a database.
func TestReceiptsAreVerifiedFromAFile(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line+clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 0, "")
	p.Run("", "policy", "set", "--tenant", "acme", "--max-attempts", "4", "--actor", "root", "--reason", "r").Check(t, "policy set", 0, "")
	auditorOf(t, p)
	dir := t.TempDir()
	file, heads := filepath.Join(dir, "acme.jsonl"), filepath.Join(dir, "heads")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--save-heads", heads).Check(t, "save heads", 0, "")
	exported := p.Run("", "receipts", "export", "--tenant", "acme", "--json", file)
	exported.Check(t, "export", 0, "")
	p.Run("", "receipts", "export", "--tenant", "acme", file).Check(t, "a file that exists", 2, "exists: name another file")
	p.Run("", "receipts", "export", "--tenant", "acme", "--save-heads", heads, file+".new").Check(t, "a file of heads that exists", 2, "heads exists")
	p.Run("", "receipts", "export", "--tenant", "acme", "--force", file).Check(t, "replace it", 0, "3 receipts written")
	if _, err := os.Stat(file + ".new"); !os.IsNotExist(err) {
		t.Error(err)
	}
	if v := exported.Object(t); v["receipts"] != 3.0 || v["file"] != file {
		t.Errorf("%v", v)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 3 {
		t.Fatalf("%s, %v", text, err)
	}
	if out := p.Run("", "receipts", "export", "--all-tenants", "-"); out.Out != string(text) {
		t.Errorf("to standard output: %q", out.Out)
	}
	one, oneHead := filepath.Join(dir, "one.jsonl"), filepath.Join(dir, "one.heads")
	p.Run("", "receipts", "export", "--tenant", "acme", "--transaction", "txr_1", one+".own").Check(t, "a case writes its head by itself", 0, "1 head written to "+one+".own.heads")
	exportedCase := p.Run("", "receipts", "export", "--tenant", "acme", "--transaction", "txr_1", "--save-heads", oneHead, "--json", one)
	exportedCase.Check(t, "export of a case", 0, "")
	if v := exportedCase.Object(t); v["receipts"] != 1.0 || v["heads"] != oneHead {
		t.Errorf("%v", v)
	}
	p.Run("", "receipts", "export", "--tenant", "acme", "--transaction", "txr_9", one+".none").Check(t, "no such case", 1, "tenant acme has no transaction txr_9")
	p.Run("", "receipts", "export", "--all-tenants", "--transaction", "txr_1", one+".none").Check(t, "no tenant", 2, "need --tenant")
	if _, err := os.Stat(one + ".none"); !os.IsNotExist(err) {
		t.Error(err)
	}
	clear(p.Env) // neither a database nor a Redis is named from here
	for name, flags := range map[string]string{"its own head": oneHead, "the heads of all": heads, "the head by itself": one + ".own.heads"} {
		p.Run("", "receipts", "verify", "--tenant", "acme", "--file", one, "--heads", flags).Check(t, name, 0, "1 saved head compared")
		p.Run("", "receipts", "verify", "--all-tenants", "--file", one, "--heads", flags).Check(t, name, 0, "1 saved head compared")
	}
	if v := p.Run("", "receipts", "verify", "--tenant", "acme", "--file", one, "--heads", heads, "--json").Object(t); v["heads_of_other_cases"] != 2.0 {
		t.Errorf("%v", v)
	}
	savedElsewhere, err := os.ReadFile(heads)
	if err != nil {
		t.Fatal(err)
	}
	clitest.WriteFile(t, heads+".win", "\ufeff"+strings.ReplaceAll(string(savedElsewhere), "\n", "\r\n"))
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", one, "--heads", heads+".win").Check(t, "heads as another program saved them", 0, "1 saved head compared")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file, "--heads", oneHead).Check(t, "many cases and the head of one", 0, "1 saved head compared, 2 trails")
	empty := filepath.Join(dir, "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Run("", "receipts", "verify", "--all-tenants", "--file", empty).Check(t, "an empty file", 1, "has no receipts")
	whole := p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file, "--heads", heads, "--json")
	whole.Check(t, "the file", 0, "")
	v := whole.Object(t)
	verdicts := v["invariants"].(map[string]any)
	if v["ok"] != true || v["cases"] != 2.0 || v["runs"] != 2.0 || v["receipts"] != 3.0 || v["chains_verified"] != 3.0 || v["heads_compared"] != 3.0 || v["trails_without_head"] != 0.0 {
		t.Errorf("%v", v)
	}
	for name, want := range map[string]string{
		audit.InvariantChains: "ok", audit.InvariantBudgets: audit.CheckedInPartVerdict, audit.InvariantHeads: "ok",
		audit.InvariantAccounted: audit.NotCheckedVerdict, audit.InvariantLetters: audit.NotCheckedVerdict, audit.InvariantFold: audit.CheckedInPartVerdict, audit.InvariantEscrows: audit.NotCheckedVerdict, audit.InvariantOrder: audit.NotCheckedVerdict,
	} {
		if verdicts[name] != want {
			t.Errorf("%s: %v, want %s", name, verdicts[name], want)
		}
	}
	people := p.Run("", "receipts", "verify", "--all-tenants", "--file", file)
	people.Check(t, "for people", 0, "")
	if strings.Count(people.Out, "not checked") != 4 || strings.Count(people.Out, "in part") != 2 {
		t.Errorf("%s", people.Out)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.SplitAfter(string(text), "\n")
	write(strings.Replace(string(text), `"actor":"system:escrow"`, `"actor":"user:eve"`, 1))
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file).Check(t, "an edited line", 1, "broken")
	write(lines[0] + lines[2])
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file).Check(t, "a case is left out", 0, "")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file, "--heads", heads).Check(t, "a case is left out, with heads", 1, "broken")
	write(strings.TrimSuffix(string(text), "\n"))
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file).Check(t, "a file that is cut off", 2, "line 3: the line is cut off")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file+".none").Check(t, "no file", 2, "no such file")
	p.Run("", "receipts", "verify", "--tenant", "acme", "--file", file, "--transaction", "txr_1").Check(t, "a transaction in a file", 2, "needs a database")
}
