package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

func TestACircuitBreakerIsOpenedListedAndReleased(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	order := func(verb string, more ...string) clitest.Result {
		return p.Run("", append([]string{"breaker", verb, "--tenant", "acme", "--actor", "kim", "--reason", "they asked us to"}, more...)...)
	}
	if none := p.Run("", "breaker", "list", "--tenant", "acme"); none.Code != 0 || !strings.Contains(none.Out, "No circuit breaker of acme") {
		t.Errorf("%+v", none)
	}
	order("release").Check(t, "nothing to release", 1, "not open")
	opened := order("open", "--json")
	opened.Check(t, "open", 0, "")
	if v := opened.Object(t); v["state"] != "open" || v["by_hand"] != true || v["target"] != "escrow" || v["actor"] != "kim" {
		t.Errorf("%v", v)
	}
	list := p.Run("", "breaker", "list", "--tenant", "acme")
	list.Check(t, "list", 0, "")
	for _, word := range []string{"escrow", "open by hand", "kim", "they asked us to"} {
		if !strings.Contains(list.Out, word) {
			t.Errorf("%q is not in %s", word, list.Out)
		}
	}
	if v := p.Run("", "breaker", "list", "--tenant", "other", "--json").Object(t); len(v["breakers"].([]any)) != 0 {
		t.Errorf("another tenant sees %v", v)
	}
	submitted := p.Run(clitest.Line+"\n", "submit", "-", "--json")
	submitted.Check(t, "submit", 0, "")
	if status := p.Run("", "status", "--tenant", "acme", "txr_1"); status.Code != 0 || !strings.Contains(strings.Join(strings.Fields(status.Out), " "), "paused: the circuit breaker of escrow for acme is open by hand since") {
		t.Errorf("%+v", status)
	}
	if said := order("release"); said.Code != 0 || !strings.Contains(said.Out, "closed") {
		t.Errorf("%+v", said)
	}
	verify := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	verify.Check(t, "verify", 0, "")
	if v := verify.Object(t); v["ok"] != true || v["receipts"] != 3.0 || v["chains_verified"] != 2.0 {
		t.Errorf("%v", v)
	}
}

// The breaker of a name that no running process calls is not opened by mistake.
func TestABreakerThatWouldStopNothingIsRefused(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	open := func(target string, more ...string) clitest.Result {
		return p.Run("", append([]string{"breaker", "open", "--tenant", "acme", "--actor", "kim", "--reason", "x", "--target", target}, more...)...)
	}
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	poll.Until(t, "the beat of the server", func() bool { return open("nowhere").Code != 0 })
	open("nowhere").Check(t, "misspelt", 2, "no process calls the target nowhere; the known ones are escrow")
	open("nowhere", "--yes").Check(t, "on purpose", 0, "")
	open("escrow").Check(t, "called", 0, "")
	open("queue:payouts").Check(t, "of remote workers", 0, "")
	p = clitest.New(t, testkit.Migrated(t))
	open("nowhere").Check(t, "while no process runs", 0, "")
}

func TestABreakerOverAllTenantsIsOpenedAndReleasedByHand(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	order := func(verb string) clitest.Result {
		return p.Run("", "breaker", verb, "--all-tenants", "--actor", "kim", "--reason", "they asked us to", "--json")
	}
	for _, step := range []struct{ verb, state string }{{"open", "open"}, {"release", "half_open"}, {"release", "closed"}} {
		said := order(step.verb)
		said.Check(t, step.verb, 0, "")
		if v := said.Object(t); v["state"] != step.state || v["tenant"] != "*" {
			t.Errorf("%s: %v", step.verb, v)
		}
	}
	order("release").Check(t, "nothing to release", 1, "not open")
	if list := p.Run("", "breaker", "list", "--tenant", "acme"); list.Code != 0 || !strings.Contains(list.Out, "all tenants") {
		t.Errorf("a tenant does not see it: %+v", list)
	}
	p.Run("", "breaker", "open", "--all-tenants", "--tenant", "acme", "--actor", "a", "--reason", "b").Check(t, "both", 2, "exclude")
}

func TestIncompleteBreakerCommandsAreBadUsage(t *testing.T) {
	t.Parallel()
	for args, word := range map[string]string{
		"breaker frobnicate":                                  "frobnicate",
		"breaker list":                                        "--tenant is missing",
		"breaker list acme":                                   "too many",
		"breaker open --tenant t":                             "--actor and --reason",
		"breaker open --actor a --reason b":                   "--tenant is missing",
		"breaker release --tenant t --actor a":                "--actor and --reason",
		"breaker release --tenant t --actor a --reason b x":   "too many",
		"breaker release --actor a --reason b --target other": "--tenant is missing",
	} {
		clitest.Execute(t.Context(), nil, strings.NewReader(""), strings.Fields(args)...).Check(t, args, 2, word)
	}
}
