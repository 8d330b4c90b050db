package dlq_test

import (
	"net/http"
	"path/filepath"
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

// The flags and arguments of another tool for dead letters mean here what they mean there.
func TestTheNamesOfAnotherToolAreTaken(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	started, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	for _, n := range []string{"1", "2"} {
		line := strings.NewReplacer("txr_1", "txr_"+n, "sub_1", "sub_"+n, "adj_1", "adj_"+n, "esc_1", "esc_"+n, "{\"transaction", `{"simulate":["refused"],"transaction`).Replace(clitest.Line)
		p.Run(line, "submit", "-").Check(t, "submit", 0, "")
	}
	const job = "0197a1c2-0000-7000-8000-000000000001"
	for _, r := range [][2]string{
		{"/jobs", `{"id":"` + job + `","type":"mail.send","queue":"mail","args":[],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`},
		{"/workers/fetch", `{"queues":["mail"]}`}, {"/workers/nack", `{"job_id":"` + job + `","error":{"message":"m"}}`},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, started["url"].(string)+"/ojs/v1"+r[0], strings.NewReader(r[1]))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Recourse-Tenant", "acme")
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode > 201 {
			t.Fatal(r[0], response, err)
		}
		_ = response.Body.Close()
	}
	dlq := func(args ...string) clitest.Result {
		return p.Run("", append([]string{"dlq", args[0], "--tenant", "acme", "--json"}, args[1:]...)...)
	}
	letters := func(args ...string) []any {
		t.Helper()
		got := dlq(append([]string{"list"}, args...)...)
		got.Check(t, "list", 0, "")
		return got.Object(t)["letters"].([]any)
	}
	for len(letters()) < 3 { // bounded by the time limit of go test
	}
	for flag, want := range map[string]int{"txr_1": 1, job: 1, "txr_3": 0} {
		if got := letters("--job-id", flag); len(got) != want {
			t.Errorf("--job-id %s: %v", flag, got)
		}
	}
	if got := letters("--workflow-id", "settlement"); len(got) != 2 {
		t.Errorf("--workflow-id settlement: %v", got)
	}
	run := letters("--job-id", "txr_1")[0].(map[string]any)["run_id"].(string)
	dlq("inspect", run, "--job-id", "txr_1").Check(t, "inspect", 0, "")
	dlq("inspect", run, "--job-id", "txr_2").Check(t, "inspect of another job", 1, "dead letter of")
	for _, args := range [][]string{{"stats", "--workflow-id", "settlement"}, {"stats", "--job-id", "txr_1"}, {"analyze", "--job-id", "txr_1"}, {"export", filepath.Join(t.TempDir(), "out.json"), "--job-id", "txr_1"}} {
		dlq(args...).Check(t, strings.Join(args, " "), 0, "")
	}
	order := []string{"--actor", "user:ada", "--reason", "mended"}
	purge := dlq(append([]string{"purge", "--job-id", "txr_1", "--dry-run"}, order...)...)
	if purge.Check(t, "purge", 0, ""); purge.Object(t)["items"] != 1.0 {
		t.Errorf("%s", purge.Out)
	}
	retry := dlq(append([]string{"retry", "settlement", "--force", "--yes"}, order...)...)
	if retry.Check(t, "retry settlement", 5, ""); retry.Object(t)["plan"].(map[string]any)["items"] != 2.0 {
		t.Errorf("%s", retry.Out)
	}
	dlq(append([]string{"retry", "0197a1c2"}, order...)...).Check(t, "half a run id", 2, "RUN is not a run id")
	clear := dlq(append([]string{"clear", "settlement", "--dry-run"}, order...)...)
	if clear.Check(t, "clear settlement", 0, ""); clear.Object(t)["items"] != 2.0 {
		t.Errorf("%s", clear.Out)
	}
	dlq(append([]string{"clear", "settlement", "--family", "chores", "--dry-run"}, order...)...).Check(t, "two families", 2, "two families")
}
