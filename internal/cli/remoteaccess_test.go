package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// An admin makes, lists and revokes keys at a server, with a key that opens as much; what
// was revoked opens nothing.
func TestKeysAreKeptAtAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	v, stop := p.served("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	first := p.run("", "keys", "create", "--tenant", "acme", "--principal", "user:root", "--roles", "admin,auditor", "--actor", "root", "--reason", "the first", "--json")
	first.wants(t, "the first", 0, "")
	root := first.object(t)["token"].(string)
	at := func(token string, args ...string) said {
		return execute(t.Context(), map[string]string{backend.KeyVariable: token}, strings.NewReader(""), append(args, "--server", v["url"].(string))...)
	}
	made := at(root, "keys", "create", "--principal", "user:ada", "--roles", "auditor", "--expires-in", "1h", "--reason", "on call", "--json")
	made.wants(t, "create", 0, "")
	key := made.object(t)
	token, prefix := key["token"].(string), key["prefix"].(string)
	if !strings.HasPrefix(token, "rck_"+prefix+"_") || key["created_by"] != "user:root" || key["expires_at"] == nil || key["tenant"] != "acme" {
		t.Errorf("%v", key)
	}
	at(root, "keys", "create", "--principal", "user:ada", "--roles", "operator", "--reason", "more").wants(t, "more than its own", 1, "[operator] may do what the key may not")
	at(token, "keys", "list").wants(t, "an auditor", 1, "it takes the role admin")
	at(token, "dlq", "list").wants(t, "an auditor's list", 0, "")
	list := at(root, "keys", "list")
	if list.wants(t, "list", 0, ""); !strings.Contains(list.out, "user:ada") || !strings.Contains(list.out, "2 keys of the key's tenant") || strings.Contains(list.out, token[17:]) {
		t.Errorf("%s", list.out)
	}
	at(root, "keys", "revoke", "aaaaaaaaaaaa", "--reason", "lost").wants(t, "another key", 1, "the key's tenant has no key aaaaaaaaaaaa")
	at(root, "keys", "revoke", "short", "--reason", "lost").wants(t, "no prefix", 2, "prefix")
	if gone := at(root, "keys", "revoke", prefix, "--reason", "lost", "--json").object(t); gone["revoked_by"] != "user:root" || gone["revoked_at"] == nil {
		t.Errorf("%v", gone)
	}
	for at(token, "dlq", "list").code == 0 { // two seconds at most; bounded by the time limit of go test
	}
	at(token, "dlq", "list").wants(t, "what was revoked", 1, "key")
	at(root, "keys", "create", "--principal", "user:p", "--roles", "auditor").wants(t, "no reason", 2, "--actor and --reason")
	at(root, "keys", "create", "--principal", "user:p", "--roles", "auditor", "--reason", "x", "--actor", "me").wants(t, "an actor", 2, "--actor is not for --server")
}

// The policy is told and changed at a server as on the database.
func TestPoliciesAreKeptAtAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	v, stop := p.served("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	made := p.run("", "keys", "create", "--tenant", "acme", "--principal", "user:root", "--roles", "admin", "--actor", "root", "--reason", "the first", "--json")
	made.wants(t, "the first", 0, "")
	token := made.object(t)["token"].(string)
	at := func(args ...string) said {
		return execute(t.Context(), map[string]string{backend.KeyVariable: token}, strings.NewReader(""), append(append([]string{"policy"}, args...), "--server", v["url"].(string))...)
	}
	set := at("set", "--max-attempts", "5", "--non-retryable", "http.refused", "--reason", "they are slow", "--if-version", "0", "--json")
	set.wants(t, "set", 0, "")
	if told := set.object(t); told["version"] != 1.0 || told["actor"] != "user:root" || told["policy"].(map[string]any)["max_retry_attempts"] != 5.0 || told["policy"].(map[string]any)["base_delay"] != "25ms" {
		t.Errorf("%v", told)
	}
	at("set", "--max-attempts", "6", "--reason", "x", "--if-version", "0").wants(t, "an old version", 1, "version 1")
	at("set", "--jitter", "2", "--reason", "x").wants(t, "jitter", 2, "jitter")
	p.run("", "dlq", "fork", anyRun, "--server", v["url"].(string), "--reason", "x", "--jitter", "2").wants(t, "a fork's jitter", 1, "key")
	execute(t.Context(), map[string]string{backend.KeyVariable: token}, strings.NewReader(""), "dlq", "fork", "--all", "--yes", "--force", "--jitter", "2", "--reason", "x", "--server", v["url"].(string)).wants(t, "the jitter of forks", 2, "jitter")
	at("set", "--max-delay", "1h", "--reason", "x").wants(t, "a long delay", 0, "")
	at("set", "--base-delay", "10m", "--reason", "x").wants(t, "a delay that fits what there is", 0, "")
	at("set", "--family", "setlement", "--max-attempts", "4", "--reason", "x").wants(t, "a family that is none", 1, "no family")
	at("set", "--jitter", "0.5", "--reason", "x").wants(t, "set again", 0, "")
	here, there := p.run("", "policy", "history", "--tenant", "acme", "--json"), at("history", "--json")
	there.wants(t, "history", 0, "")
	if here.out != there.out || !strings.Contains(there.out, "they are slow") || len(there.object(t)["versions"].([]any)) != 4 {
		t.Errorf("the library says %s\nthe server %s", here.out, there.out)
	}
	if late := at("history", "--after", "1", "--json").object(t)["versions"].([]any); len(late) != 3 {
		t.Errorf("%v", late)
	}
	if none := at("history", "--family", "none"); none.code != 0 || !strings.Contains(none.out, "was not changed") {
		t.Errorf("%+v", none)
	}
	again := at("reset", "--reason", "as it was", "--if-version", "4", "--json")
	again.wants(t, "reset", 0, "")
	if now := again.object(t); now["version"] != 5.0 || now["policy"].(map[string]any)["max_retry_attempts"] != 3.0 {
		t.Errorf("%v", now)
	}
	at("reset", "--reason", "x", "--if-version", "4").wants(t, "reset of an old version", 1, "version 5")
	at("reset").wants(t, "no reason", 2, "--actor and --reason")
	at("history", "--limit", "0").wants(t, "limit", 2, "limit")
	here, there = p.run("", "policy", "list", "--tenant", "acme"), at("list")
	if there.wants(t, "list", 0, ""); here.out != there.out || !strings.Contains(there.out, "as configured again, version 5, user:root") {
		t.Errorf("the library says %s\nthe server %s", here.out, there.out)
	}
}

// The first answer of a new key is the only one with its secret.
func TestAKeyWhoseAnswerWasLostIsNamedForRevocation(t *testing.T) {
	t.Parallel()
	asked := 0
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"prefix":"abcdefghijkl","tenant":"acme"}`))
	}))
	defer lossy.Close()
	execute(t.Context(), nil, strings.NewReader(""), "keys", "create", "--server", lossy.URL, "--principal", "user:p", "--roles", "auditor", "--reason", "x").
		wants(t, "create", 1, "revoke abcdefghijkl")
}

// A key goes over plain http to this machine only, unless somebody says otherwise.
func TestAKeyDoesNotTravelInTheClear(t *testing.T) {
	t.Parallel()
	ask := func(key string, args ...string) said {
		return execute(t.Context(), map[string]string{backend.KeyVariable: key}, strings.NewReader(""), args...)
	}
	const key = "rck_aaaaaaaaaaaa_bbbb"
	for _, verb := range []string{"dlq list", "keys list", "policy list", "dlq retention"} {
		refused := ask(key, append(strings.Fields(verb), "--server", "http://recourse.invalid:8321")...)
		if refused.wants(t, verb, 2, "--insecure"); strings.Contains(refused.err, "bbbb") {
			t.Errorf("%s", refused.err)
		}
	}
	ask(key, "dlq", "list", "--server", "http://10.0.0.1.invalid:8321").wants(t, "a name like an address", 2, "in the clear")
	ask("", "dlq", "list", "--server", "http://127.0.0.1:1").wants(t, "no key", 3, "127.0.0.1:1")
	for _, here := range []string{"http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"} {
		ask(key, "dlq", "list", "--server", here).wants(t, here, 3, "the server")
	}
	ask(key, "dlq", "list", "--server", "http://recourse.invalid:8321", "--insecure").wants(t, "insecure", 3, "recourse.invalid")
	ask(key, "dlq", "list", "--tenant", "acme", "--insecure").wants(t, "no server", 2, "--insecure is about a --server")
}
