package dlq_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// operator runs commands on the dead letters of acme: on the database with the role's name as
// actor, or at a server with a key of that role only.
type operator struct {
	*clitest.Environment
	server string
	tokens map[string]string // by role
}

var readOnlyCommands = map[string]bool{"list": true, "inspect": true, "analyze": true, "stats": true, "export": true, "try": true, "show": true, "items": true, "history": true}

func (o *operator) dlq(role string, args ...string) clitest.Result {
	o.T.Helper()
	env := maps.Clone(o.Env)
	verb := args[0]
	if verb == "bulk" || verb == "rules" {
		verb = args[1]
	}
	switch {
	case o.server != "":
		delete(env, app.DatabaseVariable) // only the key gives access
		env[backend.KeyVariable] = o.tokens[role]
		args = append(args, "--server", o.server)
	default:
		args = append(args, "--tenant", "acme")
		if verb == "reconcile" {
			args = append(args, "--in-flight", "-1s", "--key-lifetime", "none", "--lookup-lifetime", "unlimited")
		}
		if !readOnlyCommands[verb] {
			args = append(args, "--actor", "user:"+role+"@acme")
		}
	}
	return clitest.Execute(o.T.Context(), env, strings.NewReader(""), append([]string{"dlq"}, args...)...)
}

// mustRun runs a command that must succeed, and returns its answer.
func (o *operator) mustRun(role string, args ...string) map[string]any {
	o.T.Helper()
	got := o.dlq(role, append(args, "--json")...)
	got.Check(o.T, strings.Join(args, " "), 0, "")
	return got.Object(o.T)
}

// letter waits for the open letter of a transaction, and returns its run.
func (o *operator) letter(transaction string) string {
	o.T.Helper()
	for { // bounded by the time limit of go test
		if all := o.mustRun("auditor", "list", "--transaction", transaction)["letters"].([]any); len(all) == 1 {
			return all[0].(map[string]any)["run_id"].(string)
		}
	}
}

// settled waits for the settlement of a transaction.
func (o *operator) settled(transaction string) {
	o.T.Helper()
	for { // bounded likewise
		if o.Run("", "status", transaction, "--tenant", "acme", "--json").Object(o.T)["settlement_progression_status"] == "settled" {
			return
		}
	}
}

// failingEscrow is an escrow service with unreadable answers for two transactions until it is
// repaired: it pays txr_5, and does not pay txr_6.
func failingEscrow(t *testing.T) (address string, repair func()) {
	t.Helper()
	escrow, err := fakeescrow.Start(fakeescrow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { escrow.Close() })
	to, err := url.Parse(escrow.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	var repaired atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		paid, lost := strings.Contains(string(body), `"txr_5"`), strings.Contains(string(body), `"txr_6"`)
		if repaired.Load() || r.Method == http.MethodPost && !paid && !lost {
			proxy.ServeHTTP(w, r)
			return
		}
		if paid {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(front.Close)
	return front.URL, func() { repaired.Store(true) }
}

// An operator settles, holds or purges the dead letters of an outage, on the database and with a
// key of each role.
func TestTheDeadLettersOfAnIncident(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"the library", "a server"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p := clitest.New(t, testkit.Migrated(t))
			escrow, repair := failingEscrow(t)
			archive := filepath.Join(t.TempDir(), "archive")
			v, stop := p.Serve("serve", "--escrow", escrow, "--listen", "127.0.0.1:0", "--breaker-manual", "--in-flight", "-1s", "--key-lifetime", "none", "--lookup-lifetime", "unlimited", "--no-auto-lookups", "--archive", archive, "--json")
			defer stop()
			p.Env[app.EscrowVariable] = escrow
			o := &operator{Environment: p, tokens: map[string]string{}}
			for _, role := range []string{"submitter", "operator", "approver", "auditor", "admin"} {
				made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:"+role+"@acme", "--roles", role, "--actor", "root", "--reason", "test", "--json")
				made.Check(t, "keys create", 0, "")
				o.tokens[role] = made.Object(t)["token"].(string)
			}
			if way == "a server" {
				o.server = v["url"].(string)
			}
			submitIncident(t, p)
			playIncident(t, o, repair)
			checkRetention(t, o, archive)
			for transaction, messages := range map[string]string{"txr_5": "found executed, moved 125.00", "txr_6": "found not_executed", "txr_1": "fork of"} {
				if list := p.Run("", "receipts", "list", "--tenant", "acme", "--transaction", transaction); list.Code != 0 || !strings.Contains(list.Out, messages) {
					t.Errorf("%s: %s", transaction, list.Out)
				}
			}
			p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
		})
	}
}

// foundPaid looks up a letter whose money moved. On the database the operator chooses the escrow
// service, so a second person has to run the plan.
func (o *operator) foundPaid(run string) {
	o.T.Helper()
	if o.server != "" {
		o.mustRun("operator", "reconcile", run, "--lookup")
		return
	}
	asked := o.dlq("operator", "reconcile", run, "--lookup", "--json")
	asked.Check(o.T, "a lookup of what was paid", 5, "another person")
	plan := asked.Object(o.T)["plan"].(map[string]any)
	o.mustRun("approver", "bulk", "run", plan["id"].(string), "--hash", plan["hash"].(string), "--yes")
}

func submitIncident(t *testing.T, p *clitest.Environment) {
	t.Helper()
	var in strings.Builder
	for _, one := range [][3]string{
		{"1", "12500", "refused,ok"}, {"2", "12500", "refused,ok"}, {"3", "700", "refused"}, {"4", "800", "refused"}, {"5", "12500", "ok"}, {"6", "12500", "ok"},
	} {
		in.WriteString(strings.NewReplacer("txr_1", "txr_"+one[0], "sub_1", "sub_"+one[0], "adj_1", "adj_"+one[0], "esc_1", "esc_"+one[0], `"minor":12500`, `"minor":`+one[1],
			`{"transaction`, `{"simulate":"`+one[2]+`","transaction`).Replace(clitest.Line))
	}
	p.Run(in.String(), "submit", "-").Check(t, "submit", 0, "")
}

func playIncident(t *testing.T, o *operator, repair func()) {
	t.Helper()
	runs := map[string]string{}
	for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
		runs[n] = o.letter("txr_" + n)
	}
	if n := len(o.mustRun("operator", "list", "--class", "unknown")["letters"].([]any)); n != 2 {
		t.Errorf("%d letters of unknown money", n)
	}
	analysis := o.mustRun("auditor", "analyze")
	if analysis["letters"] != 6.0 || analysis["at_risk"].(map[string]any)["USD"] != 51500.0 || analysis["groups"].(float64) < 2 {
		t.Errorf("%v", analysis)
	}
	if stats := o.mustRun("approver", "stats"); stats["open"] != 6.0 {
		t.Errorf("%v", stats)
	}
	seen := o.mustRun("admin", "inspect", runs["5"])
	if letter := seen["letter"].(map[string]any); letter["can_fork"] != false || letter["refused_by"] != "reconcile_first" || len(seen["attempts"].([]any)) == 0 {
		t.Errorf("%v", seen)
	}
	for _, what := range []string{"txr_5", runs["5"][24:]} {
		if named := o.mustRun("auditor", "inspect", what)["letter"].(map[string]any)["run_id"]; named != runs["5"] {
			t.Errorf("inspect %s: %v", what, named)
		}
	}
	o.dlq("auditor", "inspect", "txr_95").Check(t, "inspect of nothing", 1, "has no dead letter of txr_95")
	checkExports(t, o)
	rules(t, o)
	for _, args := range [][]string{{"list"}, {"inspect", runs["5"]}, {"analyze"}, {"stats"}} {
		if shown := o.dlq("auditor", args...); shown.Code != 0 || !strings.Contains(shown.Out, runs["5"]) && args[0] != "stats" && args[0] != "analyze" {
			t.Errorf("%v: %+v", args, shown)
		}
	}
	o.dlq("operator", "fork", runs["5"], "--reason", "now").Check(t, "fork of unknown money", 1, "reconcile_first")
	o.dlq("operator", "reconcile", runs["5"], "--lookup").Check(t, "lookup of what is down", 1, "the lookup decided nothing: http.unavailable: 502: look up again later, or record a finding")
	repair()
	o.mustRun("operator", "fork", runs["1"], "--reason", "the account is open again")
	o.settled("txr_1")
	o.foundPaid(runs["5"])
	o.settled("txr_5")
	if status := o.mustRun("operator", "reconcile", runs["6"], "--lookup"); status["settlement_progression_status"] != "dispute-ready" || status["unknown_open"] != 0.0 {
		t.Errorf("%v", status)
	}
	if seen := o.dlq("auditor", "inspect", runs["6"]); seen.Code != 0 || !strings.Contains(seen.Out, "not_executed by ") {
		t.Errorf("who runs the plan of another person does not see what was found: %+v", seen)
	}
	o.mustRun("operator", "hold", runs["4"], "--reason", "in court")
	plan := o.mustRun("operator", "bulk", "plan", "fork", "--min-amount", "10.00USD", "--reason", "mended")
	if plan["items"] != 2.0 || plan["ready"] != 2.0 || plan["money"].(map[string]any)["USD"] != 25000.0 {
		t.Errorf("%v", plan)
	}
	id, hash := plan["id"].(string), plan["hash"].(string)
	o.dlq("approver", "bulk", "run", id, "--hash", hash).Check(t, "nobody to ask", 2, "--yes")
	o.dlq("approver", "bulk", "run", id, "--hash", strings.Repeat("0", 64), "--yes").Check(t, "another hash", 2, "plan_stale")
	if done := o.mustRun("approver", "bulk", "run", id, "--hash", hash, "--yes"); done["state"] != "done" || done["progress"].(map[string]any)["done"] != 2.0 || done["started_by"] != "user:approver@acme" {
		t.Errorf("%v", done)
	}
	if items := o.mustRun("auditor", "bulk", "items", id, "--result", "done")["items"].([]any); len(items) != 2 {
		t.Errorf("%v", items)
	}
	for _, args := range [][]string{{"bulk", "show", id}, {"bulk", "items", id}, {"bulk", "list"}} {
		if shown := o.dlq("auditor", args...); shown.Code != 0 || shown.Out == "" {
			t.Errorf("%v: %+v", args, shown)
		}
	}
	o.settled("txr_2")
	o.settled("txr_6")
	if o.server != "" {
		o.refusesOtherRoles(runs["3"], id, hash)
	}
}

// checkExports checks exported files, and lists by a condition.
func checkExports(t *testing.T, o *operator) {
	t.Helper()
	dir := t.TempDir()
	sheet, lines, causes := filepath.Join(dir, "letters.csv"), filepath.Join(dir, "letters.jsonl"), filepath.Join(dir, "causes.json")
	const dear = `amount.minor > 10000 && error.type == "http.refused"`
	if n := o.mustRun("auditor", "export", sheet)["letters"]; n != 6.0 {
		t.Errorf("%v letters are exported", n)
	}
	if n := o.mustRun("auditor", "export", lines, "--filter", dear)["letters"]; n != 2.0 {
		t.Errorf("%v letters are exported", n)
	}
	o.mustRun("auditor", "analyze", "--export", causes)
	for name, count := range map[string]int{sheet: 7, lines: 2} {
		text, err := os.ReadFile(name)
		if err != nil || strings.Count(string(text), "\n") != count {
			t.Errorf("%v: %s", err, text)
		}
	}
	if text, err := os.ReadFile(causes); err != nil || !strings.Contains(string(text), `"largest_groups"`) {
		t.Errorf("%v: %s", err, text)
	}
	if streamed := o.dlq("auditor", "export", "-", "--format", "jsonl", "--error-type", "http.refused"); streamed.Code != 0 || strings.Count(streamed.Out, "\n") != 4 {
		t.Errorf("%+v", streamed)
	}
	o.dlq("auditor", "export", sheet, "--filter", "amont.minor > 1").Check(t, "a bad condition", 2, "--filter: line 1, column 6")
	o.dlq("auditor", "export", sheet, "--format", "xls").Check(t, "a bad format", 2, "--format")
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 3 {
		t.Errorf("%v, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*.part")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if found := o.mustRun("operator", "list", "--filter", dear); len(found["letters"].([]any)) != 2 || found["complete"] != true || found["scanned"] != 6.0 {
		t.Errorf("%v", found)
	}
	o.dlq("operator", "list", "--filter", "amount.minor +").Check(t, "a bad condition", 2, "--filter: line 1, column 15")
}

func rules(t *testing.T, o *operator) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rule.json")
	clitest.WriteFile(t, file, `{"name":"night","enabled":false,"filter":{"error_type":"http.refused"},"delay":"PT8H","max_replays":2}`)
	if trial := o.mustRun("admin", "rules", "try", file); trial["matched"] != 4.0 || trial["ready"] != 0.0 {
		t.Errorf("%v", trial)
	}
	if set := o.mustRun("admin", "rules", "set", file, "--reason", "they open again at night", "--if-version", "0"); set["version"] != 1.0 || set["actor"] != "user:admin@acme" {
		t.Errorf("%v", set)
	}
	clitest.WriteFile(t, file, `{"name":"night","enabled":true,"filter":{"error_typ":"x"},"delay":"PT8H","max_replays":2}`)
	o.dlq("admin", "rules", "set", file, "--reason", "x").Check(t, "a bad filter", 2, "error_typ")
	if list := o.mustRun("auditor", "rules", "list")["rules"].([]any); len(list) != 1 {
		t.Errorf("%v", list)
	}
	if shown := o.dlq("auditor", "rules", "list"); shown.Code != 0 || !strings.Contains(shown.Out, "night") {
		t.Errorf("%+v", shown)
	}
	o.dlq("admin", "rules", "delete", "night", "--reason", "x", "--if-version", "7").Check(t, "another version", 1, "version")
	o.mustRun("admin", "rules", "delete", "night", "--reason", "no longer")
	if printed := o.mustRun("auditor", "rules", "history", "night")["versions"].([]any); len(printed) != 2 || printed[1].(map[string]any)["deleted"] != true {
		t.Errorf("%v", printed)
	}
	if shown := o.dlq("auditor", "rules", "history", "night"); shown.Code != 0 || !strings.Contains(shown.Out, "no longer") {
		t.Errorf("%+v", shown)
	}
	if none := o.mustRun("auditor", "rules", "history", "day")["versions"].([]any); len(none) != 0 {
		t.Errorf("%v", none)
	}
	o.dlq("auditor", "rules", "history", "../keys").Check(t, "no name", 2, "NAME")
	o.dlq("admin", "rules", "delete", "night", "--reason", "again").Check(t, "no such rule", 1, "no rule night")
}

// checkRetention advances the clock by half a year: letters that are not held are announced, and
// removed a week later.
func checkRetention(t *testing.T, o *operator, archive string) {
	t.Helper()
	to, err := retention.OpenDir(archive)
	if err != nil {
		t.Fatal(err)
	}
	passed := 200 * 24 * time.Hour
	later, err := postadjudication.Open(t.Context(), postadjudication.Config{
		DatabaseURL: o.Env[app.DatabaseVariable], Redis: o.Redis(),
		Archive: to, Simulated: true, Now: func() time.Time { return time.Now().Add(passed) },
	})
	if err != nil {
		t.Fatal(err)
	}
	prune := func() (got retention.Report, err error) { // the server's own first round may be on
		for !got.Ran && err == nil && t.Context().Err() == nil {
			got, err = later.Prune(context.Background())
		}
		return got, err
	}
	got, err := prune()
	if err != nil || got.Announced != 1 || got.Pruned != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	passed += 8 * 24 * time.Hour
	if got, err = prune(); err != nil || got.Pruned != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := later.Close(); err != nil {
		t.Error(err)
	}
	left := o.mustRun("auditor", "list")["letters"].([]any)
	if len(left) != 1 || left[0].(map[string]any)["transaction_receipt_id"] != "txr_4" || left[0].(map[string]any)["held"] != true {
		t.Errorf("%v", left)
	}
	if n := o.mustRun("auditor", "stats")["open"]; n != 1.0 {
		t.Errorf("%v are open", n)
	}
}

// refusesOtherRoles tries each command with a key whose role does not allow it.
func (o *operator) refusesOtherRoles(run, plan, hash string) {
	o.T.Helper()
	for role, orders := range map[string][]string{
		"submitter": {"fork " + run, "hold " + run, "bulk plan fork --all", "purge --older-than 1d --yes"},
		"approver":  {"purge --older-than 1d --yes", "clear --family settlement --yes", "fork " + run, "retry " + run, "mark " + run + " --review", "bulk plan fork --all"},
		"auditor":   {"fork " + run, "release " + run, "bulk pause " + plan},
		"admin":     {"fork " + run, "hold " + run, "bulk cancel " + plan},
	} {
		for _, order := range orders {
			o.dlq(role, append(strings.Fields(order), "--reason", "I can")...).Check(o.T, role+" "+order, 1, "role_missing")
		}
	}
	o.dlq("operator", "bulk", "run", plan, "--hash", hash, "--yes").Check(o.T, "the planner", 1, "it needs the role approver")
	o.dlq("auditor", "reconcile", run, "--lookup").Check(o.T, "auditor lookup", 1, "role_missing")
}

// Removing letters asks for confirmation, and accepts only yes.
func TestRemovalAsksForConfirmation(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	p.Env[app.EscrowVariable] = v["escrow"].(string)
	o := &operator{Environment: p, tokens: map[string]string{}}
	o.makeRefused(1, `["refused"]`)
	stop() // the letters are removed where no server runs
	for _, c := range []struct {
		answer string
		code   int
	}{{"y\n", 1}, {"\n", 1}, {"yes\n", 0}} {
		person, terminal := clitest.OpenPTY(t)
		if _, err := io.WriteString(person, c.answer); err != nil {
			t.Fatal(err)
		}
		got := clitest.Execute(t.Context(), p.Env, terminal, "dlq", "purge", "--tenant", "acme", "--actor", "ada", "--reason", "old", "--error-type", "http.refused")
		if got.Code != c.code || !strings.Contains(got.Err, "1 letter would be removed") || strings.Contains(got.Err, "nothing was changed") != (c.code == 1) || strings.Contains(got.Out, "1 done") != (c.code == 0) {
			t.Errorf("%q: %+v", c.answer, got)
		}
	}
}

// A retry of many letters is one plan: of those worth a retry by itself, and with --force also of letters
// whose marks forbid it, but never of letters that a gate refuses.
func TestManyLettersAreRetriedAsTheirMarksSay(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "operator,approver", "--actor", "root", "--reason", "test", "--json")
	made.Check(t, "keys create", 0, "")
	o := &operator{Environment: p, server: v["url"].(string), tokens: map[string]string{"operator": made.Object(t)["token"].(string)}}
	o.tokens["auditor"] = o.tokens["operator"]
	var in strings.Builder
	for _, n := range []string{"1", "2", "3"} {
		in.WriteString(strings.NewReplacer("txr_1", "txr_"+n, "sub_1", "sub_"+n, "adj_1", "adj_"+n, "esc_1", "esc_"+n, `{"transaction`, `{"simulate":["refused","ok"],"transaction`).Replace(clitest.Line))
	}
	p.Run(in.String(), "submit", "-").Check(t, "submit", 0, "")
	runs := []string{o.letter("txr_1"), o.letter("txr_2"), o.letter("txr_3")}
	o.mustRun("operator", "mark", runs[0], "--eligible", "--reason", "the account is open")
	o.mustRun("operator", "mark", runs[1], "--eligible=false", "--reason", "ask first")
	for order, word := range map[string]string{
		"retry --reason x": "a filter or --all", "retry --reason x --all": "--yes", "retry --all --yes": "--reason", "retry --reason x --all --yes --parallel 0": "--parallel",
		"retry " + runs[0] + " --reason x --class unknown": "exclude each other", "retry --reason x --eligible --force --yes": "--force", "retry --reason x --all --yes --max-retries 0": "--max-retries",
	} {
		o.dlq("operator", strings.Fields(order)...).Check(t, order, 2, word)
	}
	for _, verb := range []string{"fork", "retry"} {
		o.dlq("operator", verb, runs[1], "--reason", "now").Check(t, verb+" of what is marked", 1, "ask first")
	}
	plan := o.mustRun("operator", "retry", "--all", "--yes", "--reason", "mended", "--max-retries", "2")
	if plan["state"] != "done" || plan["items"] != 1.0 || plan["progress"].(map[string]any)["done"] != 1.0 {
		t.Errorf("%v", plan)
	}
	o.settled("txr_1")
	o.mustRun("operator", "retry", runs[1], "--force", "--max-retries", "5", "--reason", "they said yes")
	o.settled("txr_2")
	forced := o.mustRun("operator", "retry", "--all", "--force", "--yes", "--reason", "mended", "--parallel", "2")
	if forced["items"] != 1.0 || forced["progress"].(map[string]any)["done"] != 1.0 {
		t.Errorf("%v", forced)
	}
	o.settled("txr_3")
	status := p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)
	if fork := status["runs"].([]any)[1].(map[string]any); fork["policy"].(map[string]any)["max_retry_attempts"] != 2.0 {
		t.Errorf("%v", fork)
	}
	if none := o.dlq("operator", "retry", "--all", "--yes", "--reason", "mended"); none.Code != 0 || !strings.Contains(none.Out, "no plan was stored") {
		t.Errorf("%+v", none)
	}
	cleared := o.mustRun("operator", "clear", "--family", "settlement", "--reason", "the end", "--yes")
	if cleared["items"] != 0.0 {
		t.Errorf("%v", cleared)
	}
	o.dlq("operator", "clear", "--family", "settlement", "--reason", "the end", "--confirm", "setlement").Check(t, "another word", 2, "confirm")
	o.dlq("operator", "purge", "--older-than-days", "1", "--reason", "old", "--confirm", "3").Check(t, "another number", 2, "confirm")
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
}
