package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// What was done with keys, plans and circuit breakers can be read on the command line.
func TestRegistersAreListed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	p.run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "operator", "--actor", "root", "--reason", "on call").wants(t, "key", 0, "")
	p.run("", "brake", "pull", "--tenant", "acme", "--actor", "user:ada", "--reason", "their bank is down").wants(t, "pull", 0, "")
	p.run("", "brake", "release", "--tenant", "acme", "--actor", "user:bob", "--reason", "it is up").wants(t, "release", 0, "")
	p.run("", "dlq", "bulk", "plan", "hold", "--tenant", "acme", "--actor", "user:ada", "--reason", "in court", "--all").wants(t, "plan", 0, "")
	for _, c := range []struct {
		args    string
		entries int
		words   string
	}{
		{"keys history", 1, "user:ada as operator"}, {"dlq bulk history", 1, "none to planned"}, {"brake history", 2, "their bank is down"}, {"brake history --after 1", 1, "it is up"}, {"access history", 0, ""},
	} {
		args := append(strings.Fields(c.args), "--tenant", "acme")
		p.run("", args...).wants(t, c.args, 0, "")
		told := p.run("", append(args, "--json")...)
		told.wants(t, c.args, 0, "")
		if all := told.object(t)["entries"].([]any); len(all) != c.entries || !strings.Contains(told.out, c.words) {
			t.Errorf("%s: %s", c.args, told.out)
		}
		p.run("", append(args, "--limit", "0")...).wants(t, c.args, 2, "--limit")
	}
}
