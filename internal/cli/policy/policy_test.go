package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func TestPolicyIsSetListedAndItsHistoryShown(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	set := func(more ...string) clitest.Result {
		return p.Run("", append([]string{"policy", "set", "--tenant", "acme", "--actor", "kim", "--reason", "they are slow"}, more...)...)
	}
	if list := p.Run("", "policy", "list", "--tenant", "acme"); list.Code != 0 || !strings.Contains(list.Out, "as configured") || !strings.Contains(list.Out, "25ms x2 up to 5m0s") {
		t.Errorf("%+v", list)
	}
	if none := p.Run("", "policy", "history", "--tenant", "acme"); none.Code != 0 || !strings.Contains(none.Out, "was not changed") {
		t.Errorf("%+v", none)
	}
	first := set("--max-attempts", "5", "--base-delay", "1s", "--if-version", "0", "--json")
	first.Check(t, "set", 0, "")
	v := first.Object(t)
	policy := v["policy"].(map[string]any)
	if v["version"] != 1.0 || v["family"] != "settlement" || v["actor"] != "kim" || policy["max_retry_attempts"] != 5.0 || policy["base_delay"] != "1s" || policy["max_delay"] != "5m0s" {
		t.Errorf("%v", v)
	}
	set("--max-attempts", "6", "--if-version", "0").Check(t, "an old version", 1, "is at version 1, not 0")
	second := set("--non-retryable", "http.refused,auth.*", "--backoff", "linear")
	second.Check(t, "set again", 0, "")
	for _, word := range []string{"5", "1s, each 1s longer, up to 5m0s", "auth.*, http.refused", "version 2", "kim"} {
		if !strings.Contains(second.Out, word) {
			t.Errorf("%q is not in %s", word, second.Out)
		}
	}
	set("--jitter", "2").Check(t, "jitter", 2, "jitter")
	set("--backoff", "constant").Check(t, "backoff", 2, "backoff")
	set("--family", "setlement", "--max-attempts", "4").Check(t, "a family that is none", 1, "no such family")
	history := p.Run("", "policy", "history", "--tenant", "acme", "--json").Object(t)["versions"].([]any)
	if len(history) != 2 || history[0].(map[string]any)["changes"] != "max_retry_attempts 3 to 5; base_delay 25ms to 1s" || history[1].(map[string]any)["version"] != 2.0 {
		t.Errorf("%v", history)
	}
	if printed := p.Run("", "policy", "history", "--tenant", "acme"); printed.Code != 0 || !strings.Contains(printed.Out, "they are slow") {
		t.Errorf("%+v", printed)
	}
	if v := p.Run("", "policy", "list", "--tenant", "other", "--json").Object(t)["policies"].([]any); len(v) != 1 || v[0].(map[string]any)["version"] != 0.0 {
		t.Errorf("another tenant sees %v", v)
	}
	verify := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	verify.Check(t, "verify", 0, "")
	if v := verify.Object(t); v["ok"] != true || v["receipts"] != 2.0 || v["chains_verified"] != 1.0 {
		t.Errorf("%v", v)
	}
}

func TestIncompletePolicyCommandsAreBadUsage(t *testing.T) {
	t.Parallel()
	for args, word := range map[string]string{
		"policy frobnicate":                                         "frobnicate",
		"policy list":                                               "--tenant is missing",
		"policy list acme":                                          "too many",
		"policy reset --tenant t":                                   "--actor and --reason",
		"policy history":                                            "--tenant is missing",
		"policy set --tenant t --max-attempts 4":                    "--actor and --reason",
		"policy set --tenant t --actor a --reason b":                "nothing to set",
		"policy set --actor a --reason b --max-attempts 4":          "--tenant is missing",
		"policy set --tenant t --actor a --reason b --base-delay 0": "--base-delay is zero",
		"dlq retry": "--reason is missing",
		"dlq retry x --tenant t --actor a --reason b":               "add --yes", // x may be a family
		"dlq retry 019a0000-0000-7000-8000-000000000000 --tenant t": "--reason",
	} {
		clitest.Execute(t.Context(), nil, strings.NewReader(""), strings.Fields(args)...).Check(t, args, 2, word)
	}
}

// A policy is read and changed at a server as on the database.
func TestPoliciesAreKeptAtAServer(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:root", "--roles", "admin", "--actor", "root", "--reason", "the first", "--json")
	made.Check(t, "the first", 0, "")
	token := made.Object(t)["token"].(string)
	at := func(args ...string) clitest.Result {
		return clitest.Execute(t.Context(), map[string]string{backend.KeyVariable: token}, strings.NewReader(""), append(append([]string{"policy"}, args...), "--server", v["url"].(string))...)
	}
	set := at("set", "--max-attempts", "5", "--non-retryable", "http.refused", "--reason", "they are slow", "--if-version", "0", "--json")
	set.Check(t, "set", 0, "")
	if printed := set.Object(t); printed["version"] != 1.0 || printed["actor"] != "user:root" || printed["policy"].(map[string]any)["max_retry_attempts"] != 5.0 || printed["policy"].(map[string]any)["base_delay"] != "25ms" {
		t.Errorf("%v", printed)
	}
	at("set", "--max-attempts", "6", "--reason", "x", "--if-version", "0").Check(t, "an old version", 1, "version 1")
	at("set", "--jitter", "2", "--reason", "x").Check(t, "jitter", 2, "jitter")
	p.Run("", "dlq", "fork", clitest.AnyRun, "--server", v["url"].(string), "--reason", "x", "--jitter", "2").Check(t, "a fork's jitter", 1, "key")
	clitest.Execute(t.Context(), map[string]string{backend.KeyVariable: token}, strings.NewReader(""), "dlq", "fork", "--all", "--yes", "--jitter", "2", "--reason", "x", "--server", v["url"].(string)).Check(t, "the jitter of forks", 2, "jitter")
	at("set", "--max-delay", "1h", "--reason", "x").Check(t, "a long delay", 0, "")
	at("set", "--base-delay", "10m", "--reason", "x").Check(t, "a delay that fits what there is", 0, "")
	at("set", "--family", "setlement", "--max-attempts", "4", "--reason", "x").Check(t, "a family that is none", 1, "no family")
	at("set", "--jitter", "0.5", "--backoff", "linear", "--reason", "x").Check(t, "set again", 0, "")
	here, there := p.Run("", "policy", "history", "--tenant", "acme", "--json"), at("history", "--json")
	there.Check(t, "history", 0, "")
	if here.Out != there.Out || !strings.Contains(there.Out, "they are slow") || len(there.Object(t)["versions"].([]any)) != 4 {
		t.Errorf("the library returned %s\nthe server %s", here.Out, there.Out)
	}
	if late := at("history", "--after", "1", "--json").Object(t)["versions"].([]any); len(late) != 3 {
		t.Errorf("%v", late)
	}
	if none := at("history", "--family", "none"); none.Code != 0 || !strings.Contains(none.Out, "was not changed") {
		t.Errorf("%+v", none)
	}
	again := at("reset", "--reason", "as it was", "--if-version", "4", "--json")
	again.Check(t, "reset", 0, "")
	if now := again.Object(t); now["version"] != 5.0 || now["policy"].(map[string]any)["max_retry_attempts"] != 3.0 {
		t.Errorf("%v", now)
	}
	at("reset", "--reason", "x", "--if-version", "4").Check(t, "reset of an old version", 1, "version 5")
	at("reset").Check(t, "no reason", 2, "--reason is missing")
	at("history", "--limit", "0").Check(t, "limit", 2, "limit")
	here, there = p.Run("", "policy", "list", "--tenant", "acme"), at("list")
	if there.Check(t, "list", 0, ""); here.Out != there.Out || !strings.Contains(there.Out, "as configured again, version 5, user:root") {
		t.Errorf("the library returned %s\nthe server %s", here.Out, there.Out)
	}
}
