package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestTheVersionIsShown(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, "")
	if r := p.Run("", "--version"); r.Code != 0 || !strings.HasPrefix(r.Out, "recourse ") || !strings.Contains(r.Out, "revision") || !strings.Contains(r.Out, "go1.") {
		t.Errorf("%d %q", r.Code, r.Out)
	}
	v := p.Run("", "--version", "--json").Object(t)
	for _, member := range []string{"version", "revision", "go"} {
		if s, ok := v[member].(string); !ok || s == "" {
			t.Errorf("%s: %v", member, v)
		}
	}
}

// The log has the start of a process, which run died and why, and the end of the process.
func TestTheLogHasStartDeadLettersAndStop(t *testing.T) {
	t.Parallel()
	for level, want := range map[string][]string{"": {"started", "a run was dead-lettered", "stopping", "stopped"}, "error": nil} {
		p := clitest.New(t, testkit.Migrated(t))
		p.Env[app.LogLevelVariable] = level
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var errs bytes.Buffer
		done := make(chan int, 1)
		env := map[string]string{}
		for k, v := range p.Env {
			env[k] = v
		}
		go func() {
			done <- cli.Execute(ctx, []string{"serve", "--embedded", "--listen", "127.0.0.1:0", "--json"}, cli.Streams{In: strings.NewReader(""), Out: w, Err: &errs, Getenv: func(n string) string { return env[n] }})
			_ = w.Close() // of a pipe, never fails
		}()
		var serving map[string]any
		if err := json.NewDecoder(r).Decode(&serving); err != nil {
			cancel()
			t.Fatalf("exit %d: %v: %s", <-done, err, errs.String())
		}
		transaction := "txr_refused" + level
		refused := strings.Replace(clitest.LineFor(transaction), "{", `{"simulate":["refused"],`, 1)
		p.Run(refused, "submit", "-").Check(t, "submit", 0, "")
		for dead := false; !dead; { // bounded by the time limit of go test
			dead = p.Run("", "status", transaction, "--tenant", "acme", "--json").Object(t)["settlement_progression_status"] == "dispute-ready"
		}
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("exit %d: %s", code, errs.String())
		}
		said := map[string]map[string]any{}
		for line := range strings.Lines(errs.String()) {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			said[strings.SplitN(l["msg"].(string), ":", 2)[0]] = l
		}
		for _, msg := range want {
			if said[msg] == nil {
				t.Errorf("without %q: %s", msg, errs.String())
			}
		}
		if want == nil && len(said) > 0 {
			t.Errorf("at level error: %s", errs.String())
		}
		if l := said["a run was dead-lettered"]; l != nil && (l["tenant"] != "acme" || l["run"] == "" || l["reason"] == "" || l["error_type"] == "" || l["error_code"] == "" ||
			l["transaction"] != transaction || l["amount"] != "125.00 USD" || l["outcome"] != "release" || !strings.Contains(fmt.Sprint(l["next"]), "fork it")) {
			t.Errorf("%v", l)
		}
	}
}
