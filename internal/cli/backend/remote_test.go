package backend_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Only the first response about a new key has its secret.
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
	clitest.Execute(t.Context(), nil, strings.NewReader(""), "keys", "create", "--server", lossy.URL, "--principal", "user:p", "--roles", "auditor", "--reason", "x").
		Check(t, "create", 1, "revoke abcdefghijkl")
}

// A key is sent over plain http only to this machine, unless --insecure is given.
func TestAKeyIsNotSentInPlaintext(t *testing.T) {
	t.Parallel()
	ask := func(key string, args ...string) clitest.Result {
		return clitest.Execute(t.Context(), map[string]string{backend.KeyVariable: key}, strings.NewReader(""), args...)
	}
	const key = "rck_aaaaaaaaaaaa_bbbb"
	for _, verb := range []string{"dlq list", "keys list", "policy list", "dlq retention"} {
		refused := ask(key, append(strings.Fields(verb), "--server", "http://recourse.invalid:8321")...)
		if refused.Check(t, verb, 2, "--insecure"); strings.Contains(refused.Err, "bbbb") {
			t.Errorf("%s", refused.Err)
		}
	}
	ask(key, "dlq", "list", "--server", "http://10.0.0.1.invalid:8321").Check(t, "a name like an address", 2, "unencrypted")
	ask("", "dlq", "list", "--server", "http://127.0.0.1:1").Check(t, "no key", 3, "127.0.0.1:1")
	for _, here := range []string{"http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"} {
		ask(key, "dlq", "list", "--server", here).Check(t, here, 3, "the server")
	}
	ask(key, "dlq", "list", "--server", "http://recourse.invalid:8321", "--insecure").Check(t, "insecure", 3, "recourse.invalid")
	ask(key, "dlq", "list", "--tenant", "acme", "--insecure").Check(t, "no server", 2, "--insecure needs --server")
}

func TestAServerThatCannotBeUsedIsReportedAsSuch(t *testing.T) {
	t.Parallel()
	ask := func(key string, args ...string) clitest.Result {
		return clitest.Execute(t.Context(), map[string]string{backend.KeyVariable: key}, strings.NewReader(""), append([]string{"dlq", "list"}, args...)...)
	}
	ask("", "--server", "ftp://x").Check(t, "scheme", 2, "--server")
	ask("", "--server", "http://user:secret@x").Check(t, "password", 2, "--server")
	ask("", "--server", "http://127.0.0.1:1/api/v1").Check(t, "path", 2, "--server")
	ask("two words", "--server", "http://127.0.0.1:1").Check(t, "key", 2, backend.KeyVariable)
	ask("", "--server", "http://127.0.0.1:1", "--database", "postgres://x").Check(t, "both", 2, "--database cannot be used with --server")
	ask("", "--server", "http://127.0.0.1:1").Check(t, "down", 3, "127.0.0.1:1")
	var shown atomic.Value
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
	}))
	defer strange.Close()
	ask("rck_aaaa_bbbb", "--server", strange.URL).Check(t, "redirect", 1, "302")
	if shown.Load() != "Bearer rck_aaaa_bbbb" {
		t.Errorf("%v", shown.Load())
	}
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "auditor", "--actor", "root", "--reason", "test", "--json").Object(t)
	here := []string{"--server", v["url"].(string)}
	ask("", here...).Check(t, "no key", 1, "put it in $"+backend.KeyVariable)
	ask("rck_aaaaaaaaaaaa_bbbb", here...).Check(t, "a key that is none", 1, "(key_invalid); the key is the one in $"+backend.KeyVariable)
	ask(made["token"].(string), append(here, "--tenant", "other")...).Check(t, "another tenant", 1, "leave --tenant out")
	ask(made["token"].(string), here...).Check(t, "its tenant", 0, "")
	clitest.Execute(t.Context(), nil, strings.NewReader(""), "dlq", "fork", clitest.AnyRun, "--server", strange.URL, "--reason", "x", "--actor", "me").Check(t, "actor", 2, "--actor cannot be used with --server")
}

// A request whose response was lost is repeated with the same Idempotency-Key; a refused request is
// not repeated.
func TestALostAnswerIsRequestedAgainUnderTheSameKey(t *testing.T) {
	t.Parallel()
	var keys []string
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"run_id":"`+clitest.AnyRun+`","held":true}`)
	}))
	defer lossy.Close()
	held := clitest.Execute(t.Context(), nil, strings.NewReader(""), "dlq", "hold", clitest.AnyRun, "--server", lossy.URL, "--reason", "x", "--json")
	held.Check(t, "hold", 0, "")
	if len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] || held.Object(t)["held"] != true {
		t.Errorf("%v: %s", keys, held.Out)
	}
}
