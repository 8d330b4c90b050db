package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// submitNumbered submits and makes the events readable, as a serving process does.
func submitNumbered(p *clitest.Environment) {
	p.T.Helper()
	_, redis := testkit.Redis(p.T)
	s, err := postadjudication.Open(context.Background(), postadjudication.Config{DatabaseURL: p.URL, Redis: redis})
	if err != nil {
		p.T.Fatal(err)
	}
	defer s.Close()
	if err := s.DrainEvents(context.Background()); err != nil {
		p.T.Fatal(err)
	}
}

func TestEventsAreReadInOrderAndFromAPositionOn(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line+clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 0, "")
	run := p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	p.Run("", "cancel", run, "--tenant", "acme", "--actor", "clerk", "--reason", "sent in error").Check(t, "cancel", 0, "")
	submitNumbered(p)
	list := func(args ...string) ([]any, string) {
		got := p.Run("", append([]string{"events", "--tenant", "acme", "--json"}, args...)...)
		got.Check(t, "events", 0, "")
		v := got.Object(t)
		next, err := json.Marshal(v["next"])
		if err != nil {
			t.Fatal(err)
		}
		return v["events"].([]any), string(next)
	}
	all, end := list()
	if len(all) != 3 || all[2].(map[string]any)["type"] != "run.cancelled" || all[2].(map[string]any)["run_id"] != run {
		t.Errorf("%v", all)
	}
	first, next := list("--limit", "2")
	rest, last := list("--after", next)
	if len(first) != 2 || len(rest) != 1 || last != end {
		t.Errorf("%v\n%v, %s, %s", first, rest, last, end)
	}
	if none, still := list("--after", end); len(none) != 0 || still != end {
		t.Errorf("%v, %s", none, still)
	}
	forPeople := p.Run("", "events", "--tenant", "acme", "--limit", "3")
	forPeople.Check(t, "events", 0, "")
	for _, word := range []string{"run.cancelled", "by clerk", "txr_2:release", "There may be more: --after"} {
		if !strings.Contains(forPeople.Out, word) {
			t.Errorf("%q is not in %s", word, forPeople.Out)
		}
	}
	p.Run("", "events", "--tenant", "other").Check(t, "nobody's", 0, "")
	p.Run("", "events", "--tenant", "acme", "--after", "1000").Check(t, "beyond the newest", 2, "newest position of the tenant")
	p.Run("", "events", "--tenant", "acme", "--after", "1000", "--follow").Check(t, "following beyond the newest", 2, "newest position of the tenant")
	p.Run("", "events").Check(t, "no tenant", 2, "--tenant is missing")
	p.Run("", "events", "--tenant", "acme", "--after", "-1").Check(t, "negative", 2, "--after")
	p.Run("", "events", "--tenant", "acme", "--limit", "0").Check(t, "limit", 2, "--limit")
	p.Run("", "events", "--tenant", "acme", "--limit", "5", "--follow").Check(t, "both", 2, "--follow")
}

func TestFollowingWritesEventsAsTheyComeAndEndsWell(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	from, to := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Execute(ctx, []string{"events", "--tenant", "acme", "--follow", "--json"},
			cli.Streams{In: strings.NewReader(""), Out: to, Err: io.Discard, Getenv: func(name string) string { return p.Env[name] }})
	}()
	lines := bufio.NewScanner(from)
	for _, id := range []string{"txr_1", "txr_2"} {
		p.Run(clitest.LineFor(id), "submit", "-").Check(t, "submit", 0, "")
		submitNumbered(p)
		var e postadjudication.Event
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Type != "run.created" || e.Data.TransactionReceiptID != id {
			t.Errorf("%s: %v", lines.Text(), err)
		}
	}
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}
