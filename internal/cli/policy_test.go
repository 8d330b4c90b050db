package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestPolicyIsSetListedAndItsHistoryTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	set := func(more ...string) said {
		return p.run("", append([]string{"policy", "set", "--tenant", "acme", "--actor", "kim", "--reason", "they are slow"}, more...)...)
	}
	if list := p.run("", "policy", "list", "--tenant", "acme"); list.code != 0 || !strings.Contains(list.out, "as configured") || !strings.Contains(list.out, "25ms x2 up to 5m0s") {
		t.Errorf("%+v", list)
	}
	if none := p.run("", "policy", "history", "--tenant", "acme"); none.code != 0 || !strings.Contains(none.out, "was not changed") {
		t.Errorf("%+v", none)
	}
	first := set("--max-attempts", "5", "--base-delay", "1s", "--if-version", "0", "--json")
	first.wants(t, "set", 0, "")
	v := first.object(t)
	policy := v["policy"].(map[string]any)
	if v["version"] != 1.0 || v["family"] != "settlement" || v["actor"] != "kim" || policy["max_retry_attempts"] != 5.0 || policy["base_delay"] != "1s" || policy["max_delay"] != "5m0s" {
		t.Errorf("%v", v)
	}
	set("--max-attempts", "6", "--if-version", "0").wants(t, "an old version", 1, "is at version 1, not 0")
	second := set("--non-retryable", "http.refused,auth.*")
	second.wants(t, "set again", 0, "")
	for _, word := range []string{"5", "1s x2 up to 5m0s", "auth.*, http.refused", "version 2", "kim"} {
		if !strings.Contains(second.out, word) {
			t.Errorf("%q is not in %s", word, second.out)
		}
	}
	set("--jitter", "2").wants(t, "jitter", 2, "jitter")
	set("--family", "setlement", "--max-attempts", "4").wants(t, "a family that is none", 1, "no such family")
	history := p.run("", "policy", "history", "--tenant", "acme", "--json").object(t)["versions"].([]any)
	if len(history) != 2 || history[0].(map[string]any)["changes"] != "max_retry_attempts 3 to 5; base_delay 25ms to 1s" || history[1].(map[string]any)["version"] != 2.0 {
		t.Errorf("%v", history)
	}
	if told := p.run("", "policy", "history", "--tenant", "acme"); told.code != 0 || !strings.Contains(told.out, "they are slow") {
		t.Errorf("%+v", told)
	}
	if v := p.run("", "policy", "list", "--tenant", "other", "--json").object(t)["policies"].([]any); len(v) != 1 || v[0].(map[string]any)["version"] != 0.0 {
		t.Errorf("another tenant sees %v", v)
	}
	verify := p.run("", "receipts", "verify", "--tenant", "acme", "--json")
	verify.wants(t, "verify", 0, "")
	if v := verify.object(t); v["ok"] != true || v["receipts"] != 2.0 || v["chains_verified"] != 1.0 {
		t.Errorf("%v", v)
	}
}

func TestPolicyOrdersThatNameTooLittleAreBadUsage(t *testing.T) {
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
		"dlq retry x --tenant t --actor a --reason b":               "no run id",
		"dlq retry 019a0000-0000-7000-8000-000000000000 --tenant t": "--reason",
	} {
		execute(t.Context(), nil, strings.NewReader(""), strings.Fields(args)...).wants(t, args, 2, word)
	}
}
