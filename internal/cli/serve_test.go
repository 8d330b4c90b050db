package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// served runs a command until the test ends, and gives its first JSON object.
func (p *place) served(args ...string) (v map[string]any, stop func() int) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	r, w := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		code := cli.Execute(ctx, args, cli.Streams{In: strings.NewReader(""), Out: w, Err: &errs, Getenv: func(n string) string { return p.env[n] }})
		_ = w.Close() // of a pipe, never fails
		done <- code
	}()
	if err := json.NewDecoder(r).Decode(&v); err != nil {
		cancel()
		p.t.Fatalf("exit %d: %v: %s", <-done, err, errs.String())
	}
	return v, func() int {
		cancel()
		return <-done
	}
}

func TestServeExecutesWhatIsSubmittedAndStopsGracefully(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	v, stop := p.served("serve", "--embedded", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--json")
	if v["embedded"] != true || v["metrics"] == v["url"].(string)+"/metrics" {
		t.Errorf("%v", v)
	}
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	resp, err := http.Get(v["readyz"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp.Status, err)
	}
	for settled := false; !settled; { // bounded by the time limit of go test
		settled = p.run("", "status", "txr_1", "--tenant", "acme", "--json").object(t)["settlement_progression_status"] == "settled"
	}
	shown := p.run("", "status", "txr_1", "--tenant", "acme")
	if !strings.Contains(shown.out, "attempt-succeeded") {
		t.Errorf("%s", shown.out)
	}
	well := p.run("", "doctor", "--json").object(t)
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
	p := newPlace(t, testkit.Migrated(t))
	p.env[app.RedisVariable] = "redis://127.0.0.1:1"
	got := p.run("", "doctor")
	got.wants(t, "doctor", 1, "wrong")
	if !strings.Contains(got.out, "wrong  Redis reachable") || !strings.Contains(got.out, "Cure:") {
		t.Errorf("%s", got.out)
	}
}

func TestDemoSettlesAGivenFileAndAnswersInOneObject(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Database(t))
	got := p.run(line+another("txr_2")+"{}\n", "demo", "--input", "-", "--json")
	got.wants(t, "demo", 0, "")
	v := got.object(t)
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
	p := newPlace(t, testkit.Database(t))
	delete(p.env, app.RedisVariable)
	v, stop := p.served("demo", "--serve", "--listen", "127.0.0.1:0", "--json")
	if v["dead_lettered"].(float64) == 0 {
		t.Errorf("%v", v)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
