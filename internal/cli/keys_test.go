package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestAKeyIsShownOnceListedAndRevoked(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	order := func(args ...string) said {
		return p.run("", append([]string{"keys"}, append(args, "--tenant", "acme", "--actor", "kim", "--reason", "on call")...)...)
	}
	if none := p.run("", "keys", "list", "--tenant", "acme"); none.code != 0 || !strings.Contains(none.out, "acme has no access key") {
		t.Errorf("%+v", none)
	}
	made := order("create", "--principal", "user:ada", "--roles", "operator,approver", "--expires-in", "720h", "--json")
	made.wants(t, "create", 0, "")
	v := made.object(t)
	token, prefix := v["token"].(string), v["prefix"].(string)
	if !strings.HasPrefix(token, "rck_"+prefix+"_") || v["principal"] != "user:ada" || v["expires_at"] == nil || v["created_by"] != "kim" {
		t.Errorf("%v", v)
	}
	if said := order("create", "--principal", "user:bob", "--roles", "auditor"); said.code != 0 || !strings.HasPrefix(said.out, "rck_") || strings.Contains(said.out, "until it is revoked") {
		t.Errorf("%+v", said)
	}
	list := p.run("", "keys", "list", "--tenant", "acme")
	list.wants(t, "list", 0, "")
	for _, word := range []string{prefix, "user:ada", "operator, approver", "valid", "never", "2 keys of acme"} {
		if !strings.Contains(list.out, word) {
			t.Errorf("%q is not in %s", word, list.out)
		}
	}
	if strings.Contains(list.out, token[17:]) {
		t.Error("the secret is listed")
	}
	if v := p.run("", "keys", "list", "--tenant", "other", "--json").object(t); len(v["keys"].([]any)) != 0 {
		t.Errorf("another tenant sees %v", v)
	}
	endless := order("create", "--principal", "user:eve", "--roles", "auditor", "--never-expires", "a sealed device")
	if endless.code != 0 || !strings.Contains(endless.out, "until it is revoked") {
		t.Errorf("%+v", endless)
	}
	if v := order("create", "--principal", "user:max", "--platform", "--json").object(t); v["roles"].([]any)[0] != "platform" {
		t.Errorf("%v", v)
	}
	order("rotate", "aaaaaaaaaaaa").wants(t, "the successor of none", 1, "aaaaaaaaaaaa")
	if next := order("rotate", prefix); next.code != 0 || !strings.HasPrefix(next.out, "rck_") || !strings.Contains(next.out, "The key "+prefix+" opens beside it") {
		t.Errorf("%+v", next)
	}
	order("revoke", "aaaaaaaaaaaa").wants(t, "another key", 1, "aaaaaaaaaaaa")
	if v := order("revoke", prefix, "--json").object(t); v["revoked_by"] != "kim" || v["revoked_at"] == nil {
		t.Errorf("%v", v)
	}
	if list := p.run("", "keys", "list", "--tenant", "acme"); !strings.Contains(list.out, "revoked") {
		t.Errorf("%s", list.out)
	}
	verify := p.run("", "receipts", "verify", "--tenant", "acme", "--json")
	verify.wants(t, "verify", 0, "")
	if v := verify.object(t); v["ok"] != true || v["receipts"] != 6.0 || v["chains_verified"] != 1.0 {
		t.Errorf("%v", v)
	}
}

func TestKeyOrdersThatNameTooLittleAreBadUsage(t *testing.T) {
	t.Parallel()
	const who = " --tenant t --actor a --reason b"
	for args, word := range map[string]string{
		"keys frobnicate":                                   "frobnicate",
		"keys list":                                         "--tenant is missing",
		"keys create --tenant t":                            "--actor and --reason",
		"keys create --actor a --reason b":                  "--tenant is missing",
		"keys create --roles operator" + who:                "--principal",
		"keys create --principal user:p" + who:              "--roles",
		"keys create --principal user:p --roles root" + who: "--roles",
		"keys create --principal user:p --roles admin --expires-in -1h" + who:                  "--expires-in",
		"keys create --principal user:p --roles admin --expires-in 17521h" + who:               "2 years",
		"keys create --principal user:p --roles admin --never-expires=" + who:                  "says why",
		"keys create --principal user:p --roles admin --never-expires x --expires-in 1h" + who: "exclude",
		"keys create --principal system:bulk --roles admin" + who:                              "--principal system: is reserved",
		"keys list --tenant t --actor a":                                                       "actor",
		"keys revoke x --tenant t --actor rule:nightly --reason b":                             "rule: is reserved",
		"cancel x --tenant t --actor system:escrow --reason b":                                 "system: is reserved",
		"brake pull --tenant t --actor local --reason b":                                       "local is reserved",
		"keys create --principal user:p --roles platform" + who:                                "given by --platform",
		"keys create --principal user:p --platform --server http://127.0.0.1:1 --reason b":     "--platform is not for --server",
		"keys rotate" + who:        "PREFIX is missing",
		"keys rotate x --tenant t": "--actor and --reason",
		"keys revoke" + who:        "PREFIX is missing",
		"keys revoke x --tenant t": "--actor and --reason",
	} {
		execute(t.Context(), nil, strings.NewReader(""), strings.Fields(args)...).wants(t, args, 2, word)
	}
}
