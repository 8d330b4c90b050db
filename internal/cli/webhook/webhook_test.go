package webhook_test

import (
	"bufio"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// webhookKey encrypts the secrets of the tests.
var webhookKey = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))

// givenSecret is a secret that a person chose.
var givenSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 24)))

// accepting starts a receiver that accepts everything but what is sent to /full.
func accepting(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/full" {
			w.WriteHeader(http.StatusInsufficientStorage)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The commands do on the database what they do at a server.
func TestWebhooksAreKeptOnTheDatabaseAndAtAServer(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Env[app.WebhookKeyVariable] = webhookKey
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--webhooks-allow", "127.0.0.0/8", "--json")
	defer stop()
	if v["webhooks"] != true {
		t.Errorf("%v", v)
	}
	key := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "admin,auditor", "--actor", "root", "--reason", "test", "--json").Object(t)["token"].(string)
	to := accepting(t)
	for where, run := range map[string]func(change bool, in string, args ...string) clitest.Result{
		"at a server": func(_ bool, in string, args ...string) clitest.Result {
			return clitest.Execute(t.Context(), map[string]string{backend.KeyVariable: key}, strings.NewReader(in), append(append([]string{"webhook"}, args...), "--server", v["url"].(string))...)
		},
		"on the database": func(change bool, in string, args ...string) clitest.Result {
			args = append(append([]string{"webhook"}, args...), "--tenant", "acme")
			if change {
				args = append(args, "--actor", "user:ada")
			}
			if args[1] == "create" || args[1] == "test" {
				args = append(args, "--webhooks-allow", "127.0.0.0/8")
			}
			return p.Run(in, args...)
		},
	} {
		if none := run(false, "", "list"); none.Code != 0 || !strings.Contains(none.Out, "has no webhook") {
			t.Errorf("%s: %+v", where, none)
		}
		made := run(true, "", "create", to, "--type", "run.failed", "--type", "run.completed", "--description", "the ledger", "--reason", "books", "--json")
		made.Check(t, where+": create", 0, "")
		hook := made.Object(t)
		id := hook["id"].(string)
		if !strings.HasPrefix(hook["secret"].(string), "whsec_") || hook["created_by"] != "user:ada" || len(hook["types"].([]any)) != 2 || hook["description"] != "the ledger" {
			t.Errorf("%s: %v", where, hook)
		}
		if list := run(false, "", "list"); !strings.Contains(list.Out, id) || !strings.Contains(list.Out, "active") {
			t.Errorf("%s: %+v", where, list)
		}
		if list := run(false, "", "list", "--json").Object(t)["webhooks"].([]any); len(list) != 1 {
			t.Errorf("%s: %v", where, list)
		}
		shown := run(false, "", "show", id)
		if shown.Code != 0 || !strings.Contains(shown.Out, "run.failed, run.completed") || !strings.Contains(shown.Out, "the ledger") || strings.Contains(shown.Out, "whsec_") {
			t.Errorf("%s: %+v", where, shown)
		}
		if trial := run(false, "", "test", id); trial.Code != 0 || !strings.Contains(trial.Out, "accepted the test event") {
			t.Errorf("%s: %+v", where, trial)
		}
		given := run(true, givenSecret+"\n", "rotate", id, "--secret-file", "-", "--overlap", "7d", "--reason", "quarterly")
		if given.Code != 0 || !strings.HasPrefix(given.Out, givenSecret+"\n") || !strings.Contains(given.Out, "former secret") {
			t.Errorf("%s: %+v", where, given)
		}
		if last := run(true, "", "rotate", id, "--overlap", "0s", "--reason", "lost", "--json").Object(t); last["former_secret_until"] != nil || last["secret"] == givenSecret {
			t.Errorf("%s: %v", where, last)
		}
		for _, c := range []struct{ verb, state string }{{"pause", "paused"}, {"resume", "active"}} {
			if changed := run(true, "", c.verb, id, "--reason", "test", "--json").Object(t); changed["state"] != c.state || changed["changed_by"] != "user:ada" {
				t.Errorf("%s: %s: %v", where, c.verb, changed)
			}
		}
		if again := run(true, "", "replay", id, "--after", "0", "--reason", "restored", "--json").Object(t); again["position"] != 0.0 {
			t.Errorf("%s: %v", where, again)
		}
		checkRefusals(t, where, id, to, run)
		if gone := run(true, "", "delete", id, "--reason", "closed"); gone.Code != 0 || !strings.Contains(gone.Out, "deleted") {
			t.Errorf("%s: %+v", where, gone)
		}
		run(false, "", "show", id).Check(t, where+": a deleted one", 1, "has no webhook "+id)
		history := run(false, "", "history")
		for _, did := range []string{"create: made, after position", "rotate: secret", "pause: active to paused", "resume: paused to active", "replay: position", "delete: active to deleted", id} {
			if !strings.Contains(history.Out, did) {
				t.Errorf("%s: no %q in %s", where, did, history.Out)
			}
		}
	}
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
}

// checkRefusals checks what the commands refuse.
func checkRefusals(t *testing.T, where, id, to string, run func(change bool, in string, args ...string) clitest.Result) {
	t.Helper()
	for _, c := range []struct {
		args []string
		code int
		word string
	}{
		{[]string{"create", "--reason", "x"}, 2, "URL is missing"},
		{[]string{"create", to}, 2, "--reason"},
		{[]string{"create", "https://192.168.0.1/", "--reason", "x"}, 2, "url"},
		{[]string{"create", "https://example.com/", "--type", "run.exploded", "--reason", "x"}, 2, `--type "run.exploded" is not a type`},
		{[]string{"create", "https://example.com/", "--after", "-1", "--reason", "x"}, 2, "--after"},
		{[]string{"create", "https://example.com/", "--secret-file", "/nowhere", "--reason", "x"}, 2, "/nowhere"},
		{[]string{"create", "https://example.com/", "--secret-file", "-", "--reason", "x"}, 2, "--secret-file has no secret"},
		{[]string{"rotate", id, "--overlap", "31d", "--reason", "x"}, 2, "--overlap"},
		{[]string{"rotate", id, "--overlap", "soon", "--reason", "x"}, 2, "--overlap"},
		{[]string{"replay", id, "--reason", "x"}, 2, "--after is missing"},
		{[]string{"replay", id, "--after", "999999999", "--reason", "x"}, 2, "--after is beyond"},
		{[]string{"pause", "nonsense", "--reason", "x"}, 2, "ID is not the id of a webhook"},
		{[]string{"pause", clitest.AnyRun, "--reason", "x"}, 1, "has no webhook " + clitest.AnyRun},
		{[]string{"delete", id}, 2, "--reason"},
	} {
		run(true, "", c.args...).Check(t, where+": "+strings.Join(c.args, " "), c.code, c.word)
	}
	run(true, "hush", "create", "https://example.com/", "--secret-file", "-", "--reason", "x").Check(t, where+": a bad secret", 2, "the secret in --secret-file must be whsec_")
	full := run(true, "", "create", to+"/full", "--reason", "x", "--json").Object(t)["id"].(string)
	if trial := run(false, "", "test", full, "--json"); trial.Code != 1 || trial.Object(t)["failure"] != "the receiver answered 507" || !strings.Contains(trial.Err, "was not accepted: the receiver answered 507") {
		t.Errorf("%s: %+v", where, trial)
	}
	run(true, "", "delete", full, "--reason", "x").Check(t, where+": delete", 0, "")
}

func TestWithoutAKeyThatEncryptsNoWebhookIsCreated(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	create := func() clitest.Result {
		return p.Run("", "webhook", "create", "https://example.com/", "--tenant", "acme", "--actor", "root", "--reason", "x")
	}
	create().Check(t, "no key", 1, "set RECOURSE_WEBHOOK_KEY")
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	if v["webhooks"] != false {
		t.Errorf("%v", v)
	}
	p.Run("", "webhook", "create", "https://example.com/", "--server", v["url"].(string), "--tenant", "acme", "--reason", "x").Check(t, "a server without a key", 1, "no_webhook_key")
	stop()
	p.Env[app.WebhookKeyVariable] = "hush"
	bad := create()
	bad.Check(t, "a bad key", 2, "RECOURSE_WEBHOOK_KEY: key 1 is not 32 bytes")
	if strings.Contains(bad.Err+bad.Out, "hush") {
		t.Errorf("%+v", bad)
	}
	p.Run("", "webhook", "list", "--tenant", "acme").Check(t, "list", 0, "") // needs no key
}

// guideReceiver is the receiver of the operators' guide, while it runs. Each line that it prints is an
// event, after a first line.
type guideReceiver struct {
	port    string
	secrets string // path of the file that it reads

	mu     sync.Mutex
	events []string
}

// startGuideReceiver runs the receiver of the guide with secrets.
func startGuideReceiver(t *testing.T) *guideReceiver {
	t.Helper()
	guide, err := os.ReadFile("../../../cmd/recourse/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(guide), "```python\n")
	script, _, closed := strings.Cut(script, "```\n")
	if lines := strings.Count(script, "\n"); !found || !closed || lines > 35 {
		t.Fatalf("the guide has no short receiver: %d lines", lines)
	}
	folder := t.TempDir()
	clitest.WriteFile(t, filepath.Join(folder, "receiver.py"), script)
	cmd := exec.Command("python3", "receiver.py", "0")
	cmd.Dir = folder
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v := &guideReceiver{secrets: filepath.Join(folder, "secrets")}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if v.port = strings.TrimSpace(strings.TrimPrefix(first, "listening at ")); err != nil {
		t.Fatalf("%v: %q %s", err, first, said.String())
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			v.mu.Lock()
			v.events = append(v.events, line)
			v.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		reading.Wait()
		if err := cmd.Wait(); err == nil || strings.Contains(said.String(), "Traceback") {
			t.Errorf("the receiver ended by itself, or complained: %v %s", err, said.String())
		}
	})
	return v
}

// printed returns the events that the receiver has printed.
func (v *guideReceiver) printed() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string{}, v.events...)
}

// await waits until the receiver has printed n events with a word.
func (v *guideReceiver) await(t *testing.T, n int, word string) {
	t.Helper()
	eventually(t, func() (bool, any) {
		all := v.printed()
		return strings.Count(strings.Join(all, ""), word) >= n, all
	})
}

// eventually waits until is returns true. seen is shown if it does not.
func eventually(t *testing.T, is func() (ok bool, seen any)) {
	t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := is()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not reached in time: %v", seen)
		}
	}
}

// The receiver of the guide, in another language, verifies and prints each event once, while its
// secret is rotated and its events are replayed.
func TestTheReceiverOfTheGuideGetsEveryEventOnce(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Env[app.WebhookKeyVariable] = webhookKey
	served, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--tenant", "acme", "--webhooks-allow", "127.0.0.0/8", "--json")
	defer stop()
	v := startGuideReceiver(t)
	run := func(args ...string) clitest.Result {
		t.Helper()
		out := p.Run("", append(append([]string{"webhook"}, args...), "--server", served["url"].(string))...)
		out.Check(t, strings.Join(args, " "), 0, "")
		return out
	}
	secretOf := func(made clitest.Result) string {
		secret, _, _ := strings.Cut(made.Out, "\n")
		return secret + "\n"
	}
	first := secretOf(run("create", "http://127.0.0.1:"+v.port+"/", "--reason", "try it"))
	clitest.WriteFile(t, v.secrets, first)
	id := run("list", "--json").Object(t)["webhooks"].([]any)[0].(map[string]any)["id"].(string)
	run("test", id)
	v.await(t, 1, "- dev.recourse.webhook.test - {'webhookId': '"+id+"'}")
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	v.await(t, 1, "dev.recourse.run.completed")
	second := secretOf(run("rotate", id, "--reason", "quarterly", "--overlap", "7d"))
	run("test", id) // the receiver knows the former secret only
	clitest.WriteFile(t, v.secrets, second)
	run("test", id)
	run("pause", id, "--reason", "maintenance")
	p.Run(clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 0, "")
	run("resume", id, "--reason", "over")
	v.await(t, 2, "dev.recourse.run.completed")
	reached := func(position float64) float64 {
		var now map[string]any
		eventually(t, func() (bool, any) {
			now = run("show", id, "--json").Object(t)
			return now["waiting"] == 0.0 && now["delivered"].(float64) > 0 && now["position"].(float64) >= position, now
		})
		return now["position"].(float64)
	}
	newest, _, _ := strings.Cut(slices.Max(v.printed()), " ") // as texts they have the order of the events
	last, err := strconv.ParseFloat(newest, 64)
	if err != nil {
		t.Fatal(err)
	}
	position := reached(last)
	run("replay", id, "--reason", "restored from a backup", "--after", "0")
	reached(position)
	seen := map[string]bool{}
	for _, line := range v.printed() {
		sequence, _, _ := strings.Cut(line, " ")
		if sequence != "-" && (seen[sequence] || len(sequence) != 19) { // a test event has none
			t.Errorf("%s", line)
		}
		seen[sequence] = true
	}
	refused, err := http.Post("http://127.0.0.1:"+v.port+"/", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Body.Close()
	if _, err := io.Copy(io.Discard, refused.Body); err != nil || refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request without a signature: %s, %v", refused.Status, err)
	}
}
