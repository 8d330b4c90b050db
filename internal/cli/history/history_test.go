package history_test

import (
	"os"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// What was done with keys, plans and circuit breakers can be read on the command line.
func TestOperationLogsAreListed(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	refused := strings.Replace(clitest.Line, "{", `{"simulate":["refused"],`, 1)
	p.Run(refused, "submit", "-").Check(t, "submit", 0, "")
	for dead := false; !dead; { // bounded by the time limit of go test
		listed := p.Run("", "dlq", "list", "--tenant", "acme", "--json")
		listed.Check(t, "list", 0, "")
		dead = len(listed.Object(t)["letters"].([]any)) == 1
	}
	p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "operator", "--actor", "root", "--reason", "on call").Check(t, "key", 0, "")
	p.Run("", "breaker", "open", "--tenant", "acme", "--actor", "user:ada", "--reason", "their bank is down").Check(t, "open", 0, "")
	p.Run("", "breaker", "release", "--tenant", "acme", "--actor", "user:bob", "--reason", "it is up").Check(t, "release", 0, "")
	p.Run("", "dlq", "bulk", "plan", "hold", "--tenant", "acme", "--actor", "user:ada", "--reason", "in court", "--all").Check(t, "plan", 0, "")
	if listed := p.Run("", "breaker", "history", "--tenant", "acme").Out; strings.Contains(listed, "Key, plan or webhook") || !strings.Contains(listed, "their bank is down") {
		t.Errorf("a history without keys, plans and webhooks has a column of them: %s", listed)
	}
	if listed := p.Run("", "breaker", "history", "--tenant", "acme").Out; !strings.Contains(listed, "Target") || !strings.Contains(listed, " escrow ") {
		t.Errorf("the history of circuit breakers has no target: %s", listed)
	}
	if listed := p.Run("", "keys", "history", "--tenant", "acme").Out; strings.Contains(listed, "Target") {
		t.Errorf("a history without targets has a column of them: %s", listed)
	}
	for _, c := range []struct {
		args    string
		entries int
		words   string
	}{
		{"keys history", 1, "user:ada as operator"}, {"dlq bulk history", 1, "none to planned"}, {"breaker history", 2, "their bank is down"}, {"breaker history --after 1", 1, "it is up"}, {"access history", 0, ""},
	} {
		args := append(strings.Fields(c.args), "--tenant", "acme")
		p.Run("", args...).Check(t, c.args, 0, "")
		printed := p.Run("", append(args, "--json")...)
		printed.Check(t, c.args, 0, "")
		if all := printed.Object(t)["entries"].([]any); len(all) != c.entries || !strings.Contains(printed.Out, c.words) {
			t.Errorf("%s: %s", c.args, printed.Out)
		}
		p.Run("", append(args, "--limit", "0")...).Check(t, c.args, 2, "--limit")
	}
}
