package dlq_test

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Rebuilding the list of dead letters needs an actor and a reason.
func TestRebuildReportsWhatItCorrected(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	p.Run("", "dlq", "rebuild", "--tenant", "acme").Check(t, "nobody asks", 2, "--actor and --reason")
	p.Run("", "dlq", "rebuild", "--actor", "user:ada", "--reason", "r").Check(t, "whose", 2, "--tenant is missing")
	said := p.Run("", "dlq", "rebuild", "--all-tenants", "--actor", "user:ada", "--reason", "rows are missing", "--json")
	said.Check(t, "all", 0, "")
	one := said.Object(t)["tenants"].([]any)[0].(map[string]any)
	if one["tenant"] != "acme" || one["inserted"] != 0.0 || one["facet_groups"] != 0.0 || one["removed"] != 0.0 {
		t.Errorf("%v", one)
	}
	p.Run("", "dlq", "rebuild", "--tenant", "acme", "--actor", "user:ada", "--reason", "rows are missing").Check(t, "for people", 0, "")
}
