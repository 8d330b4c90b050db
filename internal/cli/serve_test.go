package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestServeExecutesWhatIsSubmittedAndStopsGracefully(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--json")
	if v["embedded"] != true || v["metrics"] == v["url"].(string)+"/metrics" {
		t.Errorf("%v", v)
	}
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	for settled := false; !settled; { // bounded by the time limit of go test
		settled = p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)["settlement_progression_status"] == "settled"
	}
	resp, err := http.Get(v["readyz"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp.Status, err)
	}
	shown := p.Run("", "status", "txr_1", "--tenant", "acme")
	if !strings.Contains(shown.Out, "attempt-succeeded") {
		t.Errorf("%s", shown.Out)
	}
	well := p.Run("", "doctor", "--json").Object(t)
	names := map[string]string{}
	for _, c := range well["checks"].([]any) {
		check := c.(map[string]any)
		names[check["check"].(string)] = check["verdict"].(string)
	}
	for _, name := range []string{"Postgres reachable", "Postgres version", "receipts append-only", "schema version", "Redis reachable", "maxmemory-policy", "asynq queues"} {
		if names[name] != "ok" {
			t.Errorf("%s: %q in %v", name, names[name], names)
		}
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestDoctorSaysWhichServerIsAway(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Env[app.RedisVariable] = "redis://127.0.0.1:1"
	got := p.Run("", "doctor")
	got.Check(t, "doctor", 1, "a check failed")
	if !strings.Contains(got.Out, "wrong  Redis reachable") || !strings.Contains(got.Out, "Fix:") {
		t.Errorf("%s", got.Out)
	}
}

func TestDemoSettlesAGivenFileAndAnswersInOneObject(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	got := p.Run(clitest.Line+clitest.LineFor("txr_2")+"{}\n", "demo", "--input", "-", "--json")
	got.Check(t, "demo", 0, "")
	v := got.Object(t)
	if v["submitted"] != 2.0 || v["settled"] != 2.0 || v["rejected"] != 1.0 || v["double_effects"] != 0.0 {
		t.Errorf("%v", v)
	}
	for name, verdict := range v["invariants"].(map[string]any) {
		if verdict != "ok" {
			t.Errorf("%s: %v", name, verdict)
		}
	}
}

func TestDemoServesItsPagesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	delete(p.Env, app.RedisVariable)
	v, stop := p.Serve("demo", "--serve", "--listen", "127.0.0.1:0", "--json")
	if v["dead_lettered"].(float64) == 0 {
		t.Errorf("%v", v)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
