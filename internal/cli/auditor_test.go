package cli_test

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
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
	p.Run("", "people", "set", "1", "--tenant", "acme", "--actor", "root", "--reason", "r").Check(t, "people set", 0, "")
	db := auditorOf(t, p)
	delete(p.Env, app.RedisVariable)
	for _, write := range []string{`DELETE FROM recourse.desk`, `UPDATE recourse.runs SET due_at = due_at`, `INSERT INTO recourse.people (tenant, people, actor, reason, at) VALUES ('x', 1, 'x', 'x', now())`, `CREATE TABLE recourse.own ()`} {
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
	if v := off.Object(t); v["ok"] != true || len(v["triggers_off"].([]any)) != 1 || v["triggers_off"].([]any)[0] != "receipts.append_only" {
		t.Errorf("%v", v)
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
