package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// numbered lets the events of what was done be readable, as a serving process does.
func (p *place) numbered() {
	p.t.Helper()
	_, redis := testkit.Redis(p.t)
	s, err := postadjudication.Open(context.Background(), postadjudication.Config{DatabaseURL: p.url, Redis: redis})
	if err != nil {
		p.t.Fatal(err)
	}
	defer s.Close()
	if err := s.DrainEvents(context.Background()); err != nil {
		p.t.Fatal(err)
	}
}

func TestEventsAreReadInOrderAndFromAPositionOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line+another("txr_2"), "submit", "-").wants(t, "submit", 0, "")
	run := p.run("", "status", "txr_1", "--tenant", "acme", "--json").object(t)["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	p.run("", "cancel", run, "--tenant", "acme", "--actor", "clerk", "--reason", "sent in error").wants(t, "cancel", 0, "")
	p.numbered()
	list := func(args ...string) ([]any, string) {
		got := p.run("", append([]string{"events", "--tenant", "acme", "--json"}, args...)...)
		got.wants(t, "events", 0, "")
		v := got.object(t)
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
	forPeople := p.run("", "events", "--tenant", "acme", "--limit", "3")
	forPeople.wants(t, "events", 0, "")
	for _, word := range []string{"run.cancelled", "by clerk", "txr_2:release", "There may be more: --after"} {
		if !strings.Contains(forPeople.out, word) {
			t.Errorf("%q is not in %s", word, forPeople.out)
		}
	}
	p.run("", "events", "--tenant", "other").wants(t, "nobody's", 0, "")
	p.run("", "events").wants(t, "no tenant", 2, "--tenant is missing")
	p.run("", "events", "--tenant", "acme", "--after", "-1").wants(t, "negative", 2, "--after")
	p.run("", "events", "--tenant", "acme", "--limit", "0").wants(t, "limit", 2, "--limit")
	p.run("", "events", "--tenant", "acme", "--limit", "5", "--follow").wants(t, "both", 2, "--follow")
}

func TestFollowingWritesEventsAsTheyComeAndEndsWell(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	from, to := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Execute(ctx, []string{"events", "--tenant", "acme", "--follow", "--json"},
			cli.Streams{In: strings.NewReader(""), Out: to, Err: io.Discard, Getenv: func(name string) string { return p.env[name] }})
	}()
	lines := bufio.NewScanner(from)
	for _, id := range []string{"txr_1", "txr_2"} {
		p.run(another(id), "submit", "-").wants(t, "submit", 0, "")
		p.numbered()
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
