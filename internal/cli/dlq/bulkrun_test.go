package dlq_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// triggerWriter is a writer that calls do once trigger was written.
type triggerWriter struct {
	bytes.Buffer
	trigger string
	do      func()
}

func (n *triggerWriter) Write(b []byte) (int, error) {
	written, err := n.Buffer.Write(b)
	if strings.Contains(n.String(), n.trigger) {
		n.do()
	}
	return written, err
}

// If no process works on plans, a command that waits for one writes a note.
func TestWaitingForAPlanThatNobodyRunsIsReported(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	o := &operator{Environment: p}
	o.makeRefused(1, `"refused"`)
	stop()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	errs := &triggerWriter{trigger: "a running recourse serve works on plans", do: interrupt}
	var out bytes.Buffer
	code := cli.Execute(ctx, strings.Fields("dlq retry --all --force --yes --reason x --tenant acme --actor ada"),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: errs, Getenv: func(name string) string { return p.Env[name] }})
	if code != 1 || !strings.Contains(errs.String(), "the plan continues") || strings.Count(errs.String(), errs.trigger) != 1 {
		t.Errorf("%d: %s", code, errs.String())
	}
	plan := p.Run("", "dlq", "bulk", "list", "--tenant", "acme", "--json").Object(t)["bulks"].([]any)[0].(map[string]any)
	if plan["state"] != "running" || planDone(plan) != 0.0 {
		t.Errorf("%v", plan)
	}
}

// If somebody pauses a plan while a command waits for it, the command returns an error, so that a
// script stops.
func TestWaitingForAPlanThatIsStoppedFails(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	o := &operator{Environment: p}
	o.makeRefused(2, `"refused"`)
	stop() // nobody works on plans: the letters stay as they are
	for turn, state := range map[string]string{"pause": "paused", "cancel": "cancelled"} {
		made := o.mustRun("operator", "bulk", "plan", "fork", "--all", "--reason", "mended")
		id := made["id"].(string)
		run := []string{"bulk", "run", id, "--hash", made["hash"].(string), "--yes"}
		watched := make(chan clitest.Result, 1)
		go func() { watched <- o.dlq("operator", run...) }()
		for o.mustRun("auditor", "bulk", "show", id)["state"] != "running" { // bounded by the time limit of go test
			continue
		}
		o.mustRun("operator", "bulk", turn, id, "--reason", "not today")
		left := <-watched
		left.Check(t, turn, 1, "the plan was "+state+" by user:operator@acme (not today) with 2 of 2 letters not tried: recourse dlq bulk items "+id)
		if turn == "pause" {
			o.dlq("operator", append(run, "--detach")...).Check(t, "run of what is paused", 1, "was paused by")
		}
	}
	detached := o.mustRun("operator", "retry", "--all", "--force", "--yes", "--detach", "--reason", "mended")
	if detached["state"] != "running" { // --detach does not wait
		t.Errorf("%v", detached)
	}
}
