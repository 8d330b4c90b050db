package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Commands, flags, tenants, causes and ids are completed from the database or with a key, and without either nothing fails.
func TestCommandLinesAreCompleted(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	made := p.Run("", "keys", "create", "--principal", "user:ada", "--actor", "root", "--reason", "r", "--json", "--roles", "operator", "--tenant", "acme")
	made.Check(t, "key", 0, "")
	p.Run(strings.Replace(clitest.LineFor("txr_1"), "{", `{"simulate":["refused"],`, 1), "submit", "-").Check(t, "submit", 0, "")
	var run string
	for run == "" { // bounded by the time limit of go test
		if letters := p.Run("", "dlq", "list", "--tenant", "acme", "--json").Object(t)["letters"].([]any); len(letters) == 1 {
			run = letters[0].(map[string]any)["run_id"].(string)
		}
	}
	key := map[string]string{backend.KeyVariable: made.Object(t)["token"].(string), "RECOURSE_SERVER": v["url"].(string)}
	onDatabase := map[string]string{"RECOURSE_DATABASE_URL": p.Env["RECOURSE_DATABASE_URL"], "RECOURSE_TENANT": "acme"}
	nowhere := map[string]string{"RECOURSE_DATABASE_URL": "postgres://u@127.0.0.1:1/d?sslmode=disable", "RECOURSE_TENANT": "acme"}
	complete := func(env map[string]string, args ...string) []string {
		t.Helper()
		r := clitest.Execute(context.Background(), env, strings.NewReader(""), append([]string{"__completeNoDesc"}, args...)...)
		if r.Code != 0 || strings.Contains(r.Err, "postgres") {
			t.Errorf("%q: %+v", args, r)
		}
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")
		return slices.DeleteFunc(lines[:len(lines)-1], func(value string) bool { // as a shell does; the last line is for it
			return !strings.HasPrefix(value, args[len(args)-1])
		})
	}
	for _, c := range []struct {
		args string
		want string // with database or key
		none bool   // it comes from there
	}{
		{"dlq insp", "inspect", false}, {"dlq list --sin", "--since", false}, {"dlq list --class u", "unknown", false}, {"dlq list --reason-code poison", "poison_pill", false},
		{"status txr", "txr_1", true}, {"dlq inspect " + run[:8], run, true}, {"dlq fork ", run, true}, {"receipts list --transaction t", "txr_1", true}, {"receipts list --run ", run, true},
	} {
		args := strings.Split(c.args, " ")
		for name, env := range map[string]map[string]string{"database": onDatabase, "key": key, "nowhere": nowhere} {
			want := c.want
			if name == "nowhere" && c.none {
				want = ""
			}
			if got := strings.Join(complete(env, args...), " "); got != want {
				t.Errorf("%s, %s: %q, want %q", c.args, name, got, want)
			}
		}
	}
	if got := complete(onDatabase, "dlq", "list", "--error-type", ""); len(got) != 1 || got[0] == "" {
		t.Errorf("causes: %q", got)
	}
	if got := complete(onDatabase, "status", "--tenant", "a"); len(got) != 1 || got[0] != "acme" {
		t.Errorf("tenants: %q", got)
	}
	if got := append(complete(key, "status", "--tenant", "a"), complete(onDatabase, "status", "txr_1", "t")...); len(got) != 0 {
		t.Errorf("what can't be known, and a second argument: %q", got)
	}
}
