package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// noticing is a writer that does something once it is written a word.
type noticing struct {
	bytes.Buffer
	word string
	do   func()
}

func (n *noticing) Write(b []byte) (int, error) {
	written, err := n.Buffer.Write(b)
	if strings.Contains(n.String(), n.word) {
		n.do()
	}
	return written, err
}

// Where nobody works on plans, whoever waits for one is told so.
func TestWhoWaitsForAPlanThatNobodyWorksOnIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	_, stop := p.served("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	o := &operator{place: p}
	o.refusals(1, `"refused"`)
	stop()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	errs := &noticing{word: "worked on by a running recourse serve", do: interrupt}
	var out bytes.Buffer
	code := cli.Execute(ctx, strings.Fields("dlq retry --all --force --yes --reason x --tenant acme --actor ada"),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: errs, Getenv: func(name string) string { return p.env[name] }})
	if code != 1 || !strings.Contains(errs.String(), "the plan goes on without you") || strings.Count(errs.String(), errs.word) != 1 {
		t.Errorf("%d: %s", code, errs.String())
	}
	plan := p.run("", "dlq", "bulk", "list", "--tenant", "acme", "--json").object(t)["bulks"].([]any)[0].(map[string]any)
	if plan["state"] != "running" || done(plan) != 0.0 {
		t.Errorf("%v", plan)
	}
}
