package dlq_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// makeRefused submits settlements that the escrow service refuses, once or as scripted, and returns
// the runs of their letters.
func (o *operator) makeRefused(n int, simulate string) (runs []string) {
	o.T.Helper()
	var in strings.Builder
	ids := strings.Split("1 2 3 4 5 6 7 8 9", " ")[:n]
	for _, id := range ids {
		in.WriteString(strings.NewReplacer("txr_1", "txr_"+id, "sub_1", "sub_"+id, "adj_1", "adj_"+id, "esc_1", "esc_"+id, `"minor":12500`, `"minor":`+id+`00`,
			`{"transaction`, `{"simulate":`+simulate+`,"transaction`).Replace(clitest.Line))
	}
	o.Run(in.String(), "submit", "-").Check(o.T, "submit", 0, "")
	for _, id := range ids {
		runs = append(runs, o.letter("txr_"+id))
	}
	return runs
}

func locallyAndRemotely(t *testing.T, test func(t *testing.T, o *operator)) {
	t.Helper()
	for _, way := range []string{"the library", "a server"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p := clitest.New(t, testkit.Migrated(t))
			p.OnePerson()
			v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
			defer stop()
			p.Env[app.EscrowVariable] = v["escrow"].(string)
			made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:operator@acme", "--roles", "operator,approver", "--actor", "root", "--reason", "test", "--json")
			made.Check(t, "keys create", 0, "")
			token := made.Object(t)["token"].(string)
			o := &operator{Environment: p, tokens: map[string]string{"operator": token, "auditor": token}}
			if way == "a server" {
				o.server = v["url"].(string)
			}
			test(t, o)
			p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
		})
	}
}

func planDone(plan map[string]any) any { return plan["progress"].(map[string]any)["done"] }

// Fork, lookup and purge by a condition run as one plan each, with the same effect as the command
// on one letter.
func TestManyLettersAreForkedLookedUpAndPurgedByACondition(t *testing.T) {
	t.Parallel()
	locallyAndRemotely(t, func(t *testing.T, o *operator) {
		runs := o.makeRefused(6, `["refused","ok"]`)
		plan := o.mustRun("operator", "bulk", "plan", "fork", "--filter", "amount.minor >= 500", "--reason", "mended")
		if asked := plan["asked"].(map[string]any); plan["items"] != 2.0 || plan["scanned"] != 6.0 || asked["where"] != "amount.minor >= 500" {
			t.Errorf("%v", plan)
		}
		if planned, paused := o.mustRun("auditor", "bulk", "list", "--state", "planned")["bulks"].([]any), o.mustRun("auditor", "bulk", "list", "--state", "paused")["bulks"].([]any); len(planned) != 1 || planned[0].(map[string]any)["id"] != plan["id"] || len(paused) != 0 {
			t.Errorf("planned: %v, paused: %v", planned, paused)
		}
		if shown := o.dlq("auditor", "bulk", "show", plan["id"].(string)); !strings.Contains(shown.Out, "Causes") || !strings.Contains(shown.Out, "http.refused: ") || !strings.Contains(shown.Out, "Largest") || !strings.Contains(shown.Out, "txr_6") {
			t.Errorf("the plan shows no causes and no largest items: %s", shown.Out)
		}
		o.dlq("auditor", "bulk", "list", "--state", "waiting").Check(t, "a list of an unknown state", 2, "--state must be one of planned, running, paused, done, cancelled, refused")
		o.dlq("auditor", "bulk", "list", "--state", "").Check(t, "a list of no state", 2, "--state is empty; leave it out")
		forked := o.mustRun("operator", "fork", "--filter", "amount.minor == 100", "--yes", "--reason", "mended", "--max-attempts", "4", "--queue", "settlement:1", "--from-queue", queueOf(o, runs[0]))
		if forked["action"] != "fork" || forked["items"] != 1.0 || planDone(forked) != 1.0 {
			t.Errorf("%v", forked)
		}
		o.settled("txr_1")
		status := o.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)
		if fork := status["runs"].([]any)[1].(map[string]any); fork["queue"] != "settlement:1" || fork["policy"].(map[string]any)["max_retry_attempts"] != 4.0 {
			t.Errorf("%v", fork)
		}
		retried := o.mustRun("operator", "retry", "--filter", `transaction_receipt_id == "txr_2" || held`, "--force", "--yes", "--reason", "mended", "--limit", "3", "--parallel", "2")
		if retried["items"] != 1.0 || planDone(retried) != 1.0 {
			t.Errorf("%v", retried)
		}
		o.settled("txr_2")
		if asked := o.mustRun("operator", "reconcile", "--lookup", "--filter", "amount.minor < 500", "--error-type", "http.refused", "--yes", "--reason", "are we sure"); asked["action"] != "reconcile_by_lookup" || asked["items"] != 2.0 || planDone(asked) != 2.0 {
			t.Errorf("%v", asked)
		}
		dry := o.mustRun("operator", "purge", "--filter", "amount.minor == 600", "--dry-run")
		if dry["state"] != "planned" || dry["items"] != 1.0 || dry["action"] != "purge" {
			t.Errorf("%v", dry)
		}
		person, terminal := clitest.OpenPTY(t)
		if _, err := io.WriteString(person, "no\n"); err != nil {
			t.Fatal(err)
		}
		shown := clitest.Execute(t.Context(), o.Env, terminal, "dlq", "reconcile", "--lookup", "--tenant", "acme", "--actor", "ada", "--reason", "x", "--filter", "amount.minor == 600")
		if shown.Code != 1 || !strings.Contains(shown.Err, "selected by") || !strings.Contains(shown.Err, "--status open") || !strings.Contains(shown.Err, "amount.minor == 600") || !strings.Contains(shown.Err, "nothing was changed") {
			t.Errorf("the plan is not shown before the confirmation: %+v", shown)
		}
		o.dlq("operator", "purge", "--filter", "amount.minor == 600", "--reason", "by hand", "--confirm", "2").Check(t, "another number", 2, "which is 1 now")
		if gone := o.mustRun("operator", "purge", "--filter", "amount.minor == 600", "--reason", "by hand", "--confirm", "1"); gone["state"] != "done" || planDone(gone) != 1.0 {
			t.Errorf("%v", gone)
		}
		o.dlq("operator", "purge", "--filter", "amount.minor == 600", "--reason", "by hand", "--confirm", "1").Check(t, "a number of nothing", 2, "which is 0 now")
		o.mustRun("operator", "hold", runs[4], "--reason", "in court")
		held := o.dlq("operator", "purge", "--filter", "amount.minor >= 500", "--reason", "by hand", "--yes", "--json")
		held.Check(t, "purge of what is held", 1, "nothing was done: 1 letter refused")
		if gone := held.Object(t); gone["items"] != 1.0 || gone["ready"] != 0.0 || gone["state"] != "planned" {
			t.Errorf("held letters: %v", gone)
		}
		if dry := o.mustRun("operator", "purge", "--filter", "amount.minor >= 500", "--dry-run"); dry["ready"] != 0.0 { // a dry run is no failure
			t.Errorf("held letters: %v", dry)
		}
		refused := o.dlq("operator", "bulk", "plan", "purge", "--filter", "amount.minor >= 500", "--reason", "by hand", "--json")
		refused.Check(t, "plan of what is held", 1, "nothing was done: 1 letter refused (1 by held: the letter is held): recourse dlq bulk items")
		idle := refused.Object(t)
		o.dlq("operator", "bulk", "run", idle["id"].(string), "--hash", idle["hash"].(string), "--yes").Check(t, "run of what is held", 1, "nothing was done: 1 letter refused")
		if left := o.mustRun("auditor", "list")["letters"].([]any); len(left) != 3 {
			t.Errorf("%v", left)
		}
	})
}

func queueOf(o *operator, run string) string {
	o.T.Helper()
	return o.mustRun("auditor", "inspect", run)["letter"].(map[string]any)["queue"].(string)
}

func TestASelectionOfLettersIsNeverWidened(t *testing.T) {
	t.Parallel()
	for order, word := range map[string]string{
		"fork --reason x --yes":                                         "RUN, a filter or --all",
		"reconcile --lookup --reason x --yes":                           "RUN, a filter or --all",
		"reconcile --filter held --reason x --yes":                      "--lookup",
		"reconcile --lookup --all --yes":                                "--reason",
		"reconcile --lookup --all --reason x --finding executed --yes":  "RUN is missing",
		"retry --all --filter held --reason x --yes":                    "--all and a filter",
		"retry --filter= --reason x --yes":                              "--filter is empty",
		"bulk plan fork --reason x":                                     "a filter or --all",
		"purge --limit 3 --reason x --yes":                              "a filter is required",
		"bulk plan fork --reason x --all --filter held":                 "--all and a filter",
		"list --filter=":                                                "--filter is empty",
		"fork --all --error-type x --reason x --yes":                    "--all and a filter",
		"fork --filter held --reason x":                                 "--yes",
		"fork --filter held --reason x --force --yes":                   "--force needs RUN",
		"fork " + clitest.AnyRun + " --reason x --filter held":          "RUN and --filter",
		"fork " + clitest.AnyRun + " --reason x --all":                  "RUN and --all",
		"retry " + clitest.AnyRun + " --reason x --limit 3":             "RUN and --limit",
		"reconcile " + clitest.AnyRun + " --lookup --detach":            "RUN and --detach",
		"fork " + clitest.AnyRun + " " + clitest.AnyRun + " --reason x": "one argument too many",
		"purge --filter held --reason x --yes --detach --archive /tmp":  "--detach",
		"clear --family chores --reason x --yes --detach --archive /":   "--detach",
		"bulk run " + clitest.AnyRun + " --hash a --yes --archive /tmp": "--here",
		"bulk run " + clitest.AnyRun + " --hash a --here --detach":      "--here",
		"purge --filter held --reason x":                                "--yes",
		"purge --filter held --dry-run --yes":                           "--dry-run",
		"bulk plan fork --reason x --filter= --error-type http.refused": "--filter is empty",
	} {
		args := append([]string{"dlq"}, strings.Fields(order)...)
		if !strings.HasPrefix(order, "list") {
			args = append(args, "--actor", "ada")
		}
		clitest.Execute(t.Context(), nil, strings.NewReader(""), append(args, "--tenant", "acme")...).Check(t, order, 2, word)
	}
}

// A fork of a filter selects the letters that a plan of forks selects with it. A retry leaves out what is not worth one by
// itself, and says how many letters that are; if those are all that match, it fails.
func TestAForkSelectsWhatItsPlanSelectsAndARetrySaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	locallyAndRemotely(t, func(t *testing.T, o *operator) {
		runs := o.makeRefused(3, `["refused","ok"]`)
		for _, filter := range [][]string{{"--error-type", "http.refused"}, {"--filter", "amount.minor > 0"}, {"--all"}} {
			none := o.dlq("operator", append([]string{"retry", "--yes", "--reason", "mended", "--json"}, filter...)...)
			none.Check(t, "a retry that leaves all out", 1, "3 by not_reprocess_eligible: its mark, or else its cause of death, says that it is not worth a retry by itself")
			if refused, _ := none.Object(t)["refused"].(map[string]any); refused["not_reprocess_eligible"] != 3.0 {
				t.Errorf("%v: %s", filter, none.Out)
			}
		}
		shown := o.dlq("operator", "retry", "--all", "--yes", "--reason", "mended")
		if shown.Check(t, "on a screen", 1, "no plan was stored"); shown.Out != "" || !strings.Contains(shown.Err, "3 letters left out, not worth a retry by itself; --force includes them") {
			t.Errorf("%+v", shown)
		}
		o.mustRun("operator", "mark", runs[0], "--eligible", "--reason", "the account is open")
		retried := o.dlq("operator", "retry", "--filter", "amount.minor > 0", "--yes", "--reason", "mended", "--json")
		if retried.Check(t, "a retry that leaves some out", 0, ""); retried.Object(t)["items"] != 1.0 || !strings.Contains(retried.Err, "2 letters left out") {
			t.Errorf("%+v", retried)
		}
		o.settled("txr_1")
		o.mustRun("operator", "mark", runs[1], "--eligible=false", "--reason", "ask first")
		planned := o.mustRun("operator", "bulk", "plan", "fork", "--error-type", "http.refused", "--reason", "mended")
		forked := o.mustRun("operator", "fork", "--error-type", "http.refused", "--yes", "--reason", "mended")
		if planned["items"] != 2.0 || forked["items"] != 2.0 || planDone(forked) != 2.0 {
			t.Errorf("planned %v, forked %v", planned, forked)
		}
		nothing := o.dlq("operator", "fork", "--error-type", "http.refused", "--yes", "--reason", "mended")
		if nothing.Check(t, "what matches nothing", 0, ""); !strings.Contains(nothing.Out, "Nothing matches: no plan was stored.") {
			t.Errorf("%+v", nothing)
		}
	})
}

// Interrupting a command that waits for a plan does not stop the plan, and prints the commands that
// show and cancel it.
func TestAPlanContinuesWithoutItsWatcher(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	o := &operator{Environment: p}
	o.makeRefused(4, `["refused","ok"]`)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	watched := make(chan clitest.Result, 1)
	go func() {
		watched <- clitest.Execute(ctx, p.Env, strings.NewReader(""), "dlq", "retry", "--all", "--force", "--yes", "--throttle", "1", "--reason", "mended", "--tenant", "acme", "--actor", "user:oneil")
	}()
	var plan map[string]any
	for plan == nil { // bounded by the time limit of go test
		for _, b := range p.Run("", "dlq", "bulk", "list", "--tenant", "acme", "--json").Object(t)["bulks"].([]any) {
			if b := b.(map[string]any); b["state"] == "running" {
				plan = b
			}
		}
	}
	interrupt()
	left := <-watched
	left.Check(t, "the watcher", 1, "interrupted")
	id := plan["id"].(string)
	for _, line := range []string{"recourse dlq bulk show " + id + " --tenant acme\n", "recourse dlq bulk cancel " + id + " --tenant acme --actor user:oneil --reason ..."} {
		if !strings.Contains(left.Err, line) {
			t.Errorf("%q is not in %s", line, left.Err)
		}
	}
	if now := o.mustRun("operator", "bulk", "cancel", id, "--reason", "enough"); now["state"] != "cancelled" {
		t.Errorf("%v", now)
	}
}

// The command that a plan prints can be run unchanged.
func TestAPlanPrintsTheCommandThatRunsIt(t *testing.T) {
	t.Parallel()
	locallyAndRemotely(t, func(t *testing.T, o *operator) {
		runs := o.makeRefused(2, `["refused","ok"]`)
		planned := o.dlq("operator", "bulk", "plan", "fork", "--all", "--reason", "mended")
		planned.Check(t, "plan", 0, "")
		_, next, found := strings.Cut(planned.Out, "To run it:\n  recourse ")
		if !found || strings.Count(next, "\n") != 1 { // in one line, to be copied
			t.Fatalf("%s", planned.Out)
		}
		env := map[string]string{}
		for name, value := range o.Env {
			env[name] = value
		}
		if o.server != "" {
			delete(env, app.DatabaseVariable)
			env["RECOURSE_KEY"] = o.tokens["operator"]
		}
		ran := clitest.Execute(t.Context(), env, strings.NewReader(""), append(strings.Fields(next), "--yes", "--json")...)
		if ran.Check(t, next, 0, ""); planDone(ran.Object(t)) != 2.0 {
			t.Errorf("%s", ran.Out)
		}
		o.settled("txr_1")
		o.settled("txr_2")
		again := o.dlq("operator", "bulk", "run", ran.Object(t)["id"].(string), "--hash", ran.Object(t)["hash"].(string), "--yes")
		if again.Check(t, "what was done, again", 0, ""); !strings.Contains(again.Out, "already done") {
			t.Errorf("%+v", again)
		}
		plans := len(o.mustRun("auditor", "bulk", "list")["bulks"].([]any))
		empty := o.dlq("operator", "fork", "--all", "--yes", "--reason", "mended")
		if empty.Check(t, "a fork of nothing", 0, ""); !strings.Contains(empty.Out, "no plan was stored") || len(o.mustRun("auditor", "bulk", "list")["bulks"].([]any)) != plans {
			t.Errorf("%+v", empty)
		}
		for _, args := range [][]string{{"bulk", "plan", "fork", "--all"}, {"bulk", "plan", "hold", "--filter", "attempts > 100"}, {"retry", "--filter", "attempts > 100", "--yes"}, {"purge", "--filter", "attempts > 100", "--yes"}, {"purge", "--filter", "attempts > 100", "--dry-run"}} {
			none := o.dlq("operator", append(args, "--reason", "mended")...)
			none.Check(t, strings.Join(args, " "), 0, "")
			if !strings.Contains(none.Out, "no plan was stored") || strings.Contains(none.Out, "To run it") {
				t.Errorf("a plan of nothing: %+v, %v", none, runs)
			}
			if empty := o.mustRun("operator", append(args, "--reason", "mended")...); empty["items"] != 0.0 || empty["id"] != nil {
				t.Errorf("%v: %v", args, empty)
			}
		}
		if n := len(o.mustRun("auditor", "bulk", "list")["bulks"].([]any)); n != plans {
			t.Errorf("%d plans, %d before", n, plans)
		}
	})
}
