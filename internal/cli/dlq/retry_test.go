package dlq_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A fork may change policy and queue; retry takes the first run id of a job, though a newer run
// exists.
func TestAJobIsForkedWithChangesAndRetriedByItsFirstID(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	p.Run(strings.Replace(clitest.Line, "{", `{"simulate":["refused","refused","ok"],`, 1), "submit", "-").Check(t, "submit", 0, "")
	onlyLetter := func(not string) string {
		t.Helper()
		for { // bounded by the time limit of go test
			got := p.Run("", "dlq", "list", "--tenant", "acme", "--json")
			got.Check(t, "list", 0, "")
			if all := got.Object(t)["letters"].([]any); len(all) == 1 && all[0].(map[string]any)["run_id"] != not {
				return all[0].(map[string]any)["run_id"].(string)
			}
		}
	}
	root := onlyLetter("")
	order := func(verb string, more ...string) clitest.Result {
		return p.Run("", append([]string{"dlq", verb, root, "--tenant", "acme", "--actor", "user:ada", "--reason", "mended"}, more...)...)
	}
	order("fork", "--queue", "settlement:9").Check(t, "a queue that is none", 2, "queue")
	order("fork", "--max-attempts", "0").Check(t, "no attempts", 2, "--max-attempts is zero")
	fork := order("fork", "--queue", "settlement:1", "--max-attempts", "7", "--json")
	if fork.Check(t, "fork", 0, ""); fork.Object(t)["parent_run_id"] != root {
		t.Errorf("%s", fork.Out)
	}
	second := onlyLetter(root)
	retry := order("retry", "--json")
	retry.Check(t, "retry", 0, "")
	if v := retry.Object(t); v["root_run_id"] != root || v["run_id"] == second || v["replay_count"] != 2.0 {
		t.Errorf("%v", v)
	}
	var status map[string]any
	for status == nil || status["settlement_progression_status"] != "settled" { // bounded likewise
		status = p.Run("", "status", root, "--tenant", "acme", "--json").Object(t)
	}
	runs := status["runs"].([]any)
	forked := runs[1].(map[string]any)
	if len(runs) != 3 || forked["queue"] != "settlement:1" || forked["policy"].(map[string]any)["max_retry_attempts"] != 7.0 || forked["replay_count"] != 2.0 {
		t.Errorf("%v", runs)
	}
	if shown := p.Run("", "status", root, "--tenant", "acme"); !strings.Contains(strings.Join(strings.Fields(shown.Out), " "), "fork of") {
		t.Errorf("%s", shown.Out)
	}
	order("retry").Check(t, "retry of what is settled", 1, "not_a_letter")
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
}
