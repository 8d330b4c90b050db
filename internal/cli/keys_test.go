package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestAKeyIsShownOnceListedAndRevoked(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	order := func(args ...string) clitest.Result {
		return p.Run("", append([]string{"keys"}, append(args, "--tenant", "acme", "--actor", "kim", "--reason", "on call")...)...)
	}
	if none := p.Run("", "keys", "list", "--tenant", "acme"); none.Code != 0 || !strings.Contains(none.Out, "acme has no access key") {
		t.Errorf("%+v", none)
	}
	made := order("create", "--principal", "user:ada", "--roles", "operator,approver", "--expires-in", "30d", "--json")
	made.Check(t, "create", 0, "")
	v := made.Object(t)
	token, prefix := v["token"].(string), v["prefix"].(string)
	if !strings.HasPrefix(token, "rck_"+prefix+"_") || v["principal"] != "user:ada" || v["expires_at"] == nil || v["created_by"] != "kim" {
		t.Errorf("%v", v)
	}
	if said := order("create", "--principal", "user:bob", "--roles", "auditor"); said.Code != 0 || !strings.HasPrefix(said.Out, "rck_") || strings.Contains(said.Out, "until it is revoked") {
		t.Errorf("%+v", said)
	}
	list := p.Run("", "keys", "list", "--tenant", "acme")
	list.Check(t, "list", 0, "")
	for _, word := range []string{prefix, "user:ada", "operator, approver", "valid", "never", "2 keys of acme"} {
		if !strings.Contains(list.Out, word) {
			t.Errorf("%q is not in %s", word, list.Out)
		}
	}
	if strings.Contains(list.Out, token[17:]) {
		t.Error("the secret is listed")
	}
	if v := p.Run("", "keys", "list", "--tenant", "other", "--json").Object(t); len(v["keys"].([]any)) != 0 {
		t.Errorf("another tenant sees %v", v)
	}
	endless := order("create", "--principal", "user:eve", "--roles", "auditor", "--never-expires", "a locked device")
	if endless.Code != 0 || !strings.Contains(endless.Out, "until it is revoked") {
		t.Errorf("%+v", endless)
	}
	if v := order("create", "--principal", "user:max", "--platform", "--json").Object(t); v["roles"].([]any)[0] != "platform" {
		t.Errorf("%v", v)
	}
	shown := p.Run("", "keys", "create", "--principal", "service:prometheus", "--platform", "--actor", "kim", "--reason", "metrics")
	if shown.Check(t, "of no tenant", 0, ""); !strings.Contains(strings.Join(strings.Fields(shown.Out), " "), "asynqmon, /metrics and dlq stats --all-tenants, which show the queues and the money of all tenants") {
		t.Errorf("%s", shown.Out)
	}
	order("rotate", "aaaaaaaaaaaa").Check(t, "the successor of none", 1, "aaaaaaaaaaaa")
	if next := order("rotate", prefix); next.Code != 0 || !strings.HasPrefix(next.Out, "rck_") || !strings.Contains(next.Out, "The old key "+prefix+" stays valid") {
		t.Errorf("%+v", next)
	}
	if history := p.Run("", "keys", "history", "--tenant", "acme", "--json"); !strings.Contains(history.Out, "its token was given to kim, who is not its principal") {
		t.Errorf("%s", history.Out)
	}
	order("revoke", "aaaaaaaaaaaa").Check(t, "another key", 1, "aaaaaaaaaaaa")
	if v := order("revoke", "rck_"+prefix, "--json").Object(t); v["revoked_by"] != "kim" || v["revoked_at"] == nil {
		t.Errorf("%v", v)
	}
	if list := p.Run("", "keys", "list", "--tenant", "acme"); !strings.Contains(list.Out, "revoked") {
		t.Errorf("%s", list.Out)
	}
	verify := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	verify.Check(t, "verify", 0, "")
	if v := verify.Object(t); v["ok"] != true || v["receipts"] != 6.0 || v["chains_verified"] != 1.0 {
		t.Errorf("%v", v)
	}
}

func TestIncompleteKeyCommandsAreBadUsage(t *testing.T) {
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
		"keys create --principal user:p --roles admin --never-expires=" + who:                  "needs a reason",
		"keys create --principal user:p --roles admin --never-expires x --expires-in 1h" + who: "exclude",
		"keys create --principal system:bulk --roles admin" + who:                              "--principal system: is reserved",
		"keys list --tenant t --actor a":                                                       "actor",
		"keys revoke x --tenant t --actor rule:nightly --reason b":                             "rule: is reserved",
		"cancel x --tenant t --actor system:escrow --reason b":                                 "system: is reserved",
		"breaker open --tenant t --actor local --reason b":                                     "local is reserved",
		"keys create --principal user:p --roles platform" + who:                                "granted with --platform",
		"keys create --principal user:p --platform --server http://127.0.0.1:1 --reason b":     "--platform cannot be used with --server",
		"keys rotate" + who:        "PREFIX is missing",
		"keys rotate x --tenant t": "--actor and --reason",
		"keys revoke" + who:        "PREFIX is missing",
		"keys revoke x --tenant t": "--actor and --reason",
	} {
		clitest.Execute(t.Context(), nil, strings.NewReader(""), strings.Fields(args)...).Check(t, args, 2, word)
	}
}

// An admin creates, lists and revokes keys at a server. A key cannot create one with more access
// than its own, and a revoked key is refused.
func TestKeysAreKeptAtAServer(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	first := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:root", "--roles", "admin,auditor", "--actor", "root", "--reason", "the first", "--json")
	first.Check(t, "the first", 0, "")
	root := first.Object(t)["token"].(string)
	at := func(token string, args ...string) clitest.Result {
		return clitest.Execute(t.Context(), map[string]string{backend.KeyVariable: token}, strings.NewReader(""), append(args, "--server", v["url"].(string))...)
	}
	made := at(root, "keys", "create", "--principal", "user:ada", "--roles", "auditor", "--expires-in", "1h", "--reason", "on call", "--json")
	made.Check(t, "create", 0, "")
	key := made.Object(t)
	token, prefix := key["token"].(string), key["prefix"].(string)
	if !strings.HasPrefix(token, "rck_"+prefix+"_") || key["created_by"] != "user:root" || key["expires_at"] == nil || key["tenant"] != "acme" {
		t.Errorf("%v", key)
	}
	at(root, "keys", "create", "--principal", "user:ada", "--roles", "operator", "--reason", "more").Check(t, "more than its own", 1, "must not allow more than the access key: [operator]")
	at(token, "keys", "list").Check(t, "an auditor", 1, "it needs the role admin")
	at(token, "dlq", "list").Check(t, "an auditor's list", 0, "")
	list := at(root, "keys", "list")
	if list.Check(t, "list", 0, ""); !strings.Contains(list.Out, "user:ada") || !strings.Contains(list.Out, "2 keys of the key's tenant") || strings.Contains(list.Out, token[17:]) {
		t.Errorf("%s", list.Out)
	}
	at(root, "keys", "revoke", "aaaaaaaaaaaa", "--reason", "lost").Check(t, "another key", 1, "the key's tenant has no key aaaaaaaaaaaa")
	at(root, "keys", "revoke", "short", "--reason", "lost").Check(t, "no prefix", 2, "prefix")
	if gone := at(root, "keys", "revoke", prefix, "--reason", "lost", "--json").Object(t); gone["revoked_by"] != "user:root" || gone["revoked_at"] == nil {
		t.Errorf("%v", gone)
	}
	for at(token, "dlq", "list").Code == 0 { // two seconds at most; bounded by the time limit of go test
	}
	at(token, "dlq", "list").Check(t, "what was revoked", 1, "key")
	at(root, "keys", "create", "--principal", "user:p", "--roles", "auditor").Check(t, "no reason", 2, "--reason is missing")
	at(root, "keys", "create", "--principal", "user:p", "--roles", "auditor", "--reason", "x", "--actor", "me").Check(t, "an actor", 2, "--actor cannot be used with --server")
}
