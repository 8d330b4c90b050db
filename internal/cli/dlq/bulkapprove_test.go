package dlq_test

import (
	"io"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Two people fork the letters of one cause by three commands, at a server, with nothing passed between them: one plans, the
// other finds the plan, sees what it is now, and runs what they saw.
func TestTheSecondPersonFindsAndRunsAPlanWithoutItsHash(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	p.Env[app.EscrowVariable] = v["escrow"].(string)
	o := &operator{Environment: p}
	runs := o.makeRefused(3, `["refused","ok"]`)
	as := func(principal, roles string) func(in io.Reader, line string) clitest.Result {
		made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", principal, "--roles", roles, "--actor", "root", "--reason", "r", "--json")
		made.Check(t, principal, 0, "")
		env := map[string]string{backend.KeyVariable: made.Object(t)["token"].(string), "RECOURSE_SERVER": v["url"].(string)}
		return func(in io.Reader, line string) clitest.Result {
			return clitest.Execute(t.Context(), env, in, strings.Fields(line)...)
		}
	}
	planner, approver := as("user:ada", "operator"), as("user:bob", "approver")
	nobody := strings.NewReader("")
	planner(nobody, "dlq bulk plan fork --error-type http.refused --reason mended").Check(t, "plan", 0, "")
	waiting := approver(nobody, "dlq bulk list --waiting-for-me --json")
	waiting.Check(t, "list", 0, "")
	plan := waiting.Object(t)["bulks"].([]any)[0].(map[string]any)
	id, hash := plan["id"].(string), plan["hash"].(string)
	if table := strings.Join(strings.Fields(approver(nobody, "dlq bulk list --waiting-for-me").Out), " "); !strings.Contains(table, id) || !strings.Contains(table, "0 of 3 6.00 USD user:ada: mended") {
		t.Errorf("the list does not say how much money waits: %s", table)
	}
	planner(nobody, "dlq fork "+runs[1]+" --reason one").Check(t, "fork", 0, "")
	planner(nobody, "dlq hold "+runs[2]+" --reason court").Check(t, "hold", 0, "")
	approver(nobody, "dlq bulk run "+id).Check(t, "no terminal", 2, "--hash is missing")
	answering := func(answer, line string) clitest.Result {
		person, terminal := clitest.OpenPTY(t)
		if _, err := io.WriteString(person, answer); err != nil {
			t.Fatal(err)
		}
		return approver(terminal, line)
	}
	answering("yes\n", "dlq bulk run "+id+" --yes").Check(t, "unseen", 2, "--hash is missing")
	if no := answering("no\n", "dlq bulk run "+id); no.Code != 1 || !strings.Contains(no.Err, "nothing was changed") {
		t.Errorf("no: %+v", no)
	}
	ran := answering("yes\n", "dlq bulk run "+id)
	seen := strings.Join(strings.Fields(ran.Err), " ")
	for _, want := range []string{
		"letters 3, of which 3 were ready when it was planned", "money 6.00 USD", "ready now 1, with 1.00 USD reserved", "1 now forked", "1 now open", "pending, changed: now open",
		"hash " + hash, "fork will be applied to 1, with 1.00 USD reserved. The others changed since they were planned. Type yes", "of 3 ready letters, 2 were not done",
	} {
		if !strings.Contains(seen, want) {
			t.Errorf("the approver does not see %q: %s", want, ran.Err)
		}
	}
	if done := strings.Join(strings.Fields(ran.Out), " "); ran.Code != 1 || !strings.Contains(done, "1 done, 0 refused, 2 changed since the plan, 0 failed") {
		t.Errorf("%s", ran.Out)
	}
}

// A plan all of whose letters are refused does nothing, and waits for nobody.
func TestAPlanThatDoesNothingWaitsForNobody(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	p.Env[app.EscrowVariable] = v["escrow"].(string)
	o := &operator{Environment: p}
	run := o.makeRefused(1, `"refused"`)[0]
	o.mustRun("operator", "hold", run, "--reason", "court")
	idle := o.dlq("operator", "bulk", "plan", "purge", "--all", "--reason", "old")
	if idle.Check(t, "plan", 1, "nothing was done: 1 letter refused"); !strings.Contains(idle.Out, "The plan waits for nobody.") || strings.Contains(idle.Out, "recourse dlq bulk run") {
		t.Errorf("%s", idle.Out)
	}
	if waits := p.Run("", "dlq", "bulk", "list", "--waiting-for-me", "--tenant", "acme", "--actor", "user:bob"); waits.Code != 0 || !strings.Contains(waits.Out, "No plans.") {
		t.Errorf("%+v", waits)
	}
	if all := p.Run("", "dlq", "bulk", "list", "--tenant", "acme"); !strings.Contains(all.Out, "planned") {
		t.Errorf("%+v", all)
	}
}
