package dlq_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// shellWords returns the words of the command that an answer prints for the second person.
func shellWords(line string) []string {
	return strings.Fields(strings.TrimPrefix(line, "recourse "))
}

// A manual money decision on the database prints the command for the second person, and cannot be
// completed by the same actor.
func TestWhatTakesTwoPeopleIsPlannedAndRunByAnother(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	var in strings.Builder
	for _, n := range []string{"1", "2", "3"} {
		in.WriteString(strings.NewReplacer("txr_1", "txr_"+n, "sub_1", "sub_"+n, "adj_1", "adj_"+n, "esc_1", "esc_"+n, "{\"transaction", `{"simulate":["refused"],"transaction`).Replace(clitest.Line))
	}
	p.Run(in.String(), "submit", "-").Check(t, "submit", 0, "")
	o := &operator{Environment: p}
	run := o.letter("txr_1")
	o.letter("txr_2")
	o.letter("txr_3")
	by := func(actor string, args ...string) clitest.Result {
		return p.Run("", append(args, "--tenant", "acme", "--actor", actor)...)
	}
	finding := []string{"dlq", "reconcile", run, "--finding", "executed", "--moved", "125.00USD", "--contradicts-record", "--reason", "statement", "--reference", "stmt-7"}
	unconfirmed := slices.DeleteFunc(slices.Clone(finding), func(arg string) bool { return arg == "--contradicts-record" })
	by("user:ada", append(unconfirmed, "--yes")...).Check(t, "against the record", 2, "The record contradicts this finding: attempt 1 ended as not_executed at")
	for text, problem := range map[string]string{
		"000012500": "000012500 is not a sum of money with its currency, such as 125.00EUR; see", "12500USD": "is not written with the 2 decimals of USD, such as 125.00USD",
		"125.00EUR": "the currency of --moved must be USD, that of the case",
	} {
		wrong := slices.Clone(finding)
		wrong[slices.Index(wrong, "125.00USD")] = text
		by("user:ada", append(wrong, "--yes")...).Check(t, text, 2, problem)
	}
	by("user:ada", append(finding, "--moved-minor", "12500")...).Check(t, "both", 2, "--moved and --moved-minor exclude each other")
	if plans := p.Run("", "dlq", "bulk", "list", "--tenant", "acme"); plans.Code != 0 || !strings.Contains(plans.Out, "No plans.") {
		t.Errorf("a plan was stored: %+v", plans)
	}
	inMinor := slices.Clone(finding)
	inMinor[slices.Index(inMinor, "--moved")], inMinor[slices.Index(inMinor, "125.00USD")] = "--moved-minor", "12500"
	if said := by("user:ada", inMinor...); said.Code != 5 || !strings.HasPrefix(said.Err, "The finding: 125.00 USD was moved.\n") || !strings.Contains(said.Out, "executed, 125.00 USD moved, stmt-7") {
		t.Errorf("in minor units: %+v", said)
	}
	shown := by("user:ada", finding...)
	if shown.Check(t, "a finding alone", 5, "another person"); !strings.Contains(shown.Out, "recourse dlq bulk run") || !strings.Contains(shown.Out, "--actor NAME") || !strings.Contains(shown.Out, "executed, 125.00 USD moved, stmt-7") || !strings.Contains(shown.Out, "contradicts") || !strings.Contains(shown.Out, "attempt 1 ended as not_executed") || !strings.Contains(shown.Out, "txr_") {
		t.Errorf("%s", shown.Out)
	}
	by("user:ada", finding[:len(finding)-2]...).Check(t, "no reference of a finding", 2, "--reference is missing")
	printed := by("user:ada", append(finding, "--json")...)
	printed.Check(t, "a finding alone", 5, "another person")
	answer := printed.Object(t)
	if found := answer["plan"].(map[string]any)["asked"].(map[string]any)["finding"].(map[string]any); found["moved"] != 12500.0 || found["currency"] != "USD" {
		t.Errorf("the plan states %v", found)
	}
	line := shellWords(answer["run"].(string))
	if answer["code"] != "second_person_required" || line[len(line)-1] != "NAME" {
		t.Fatalf("%v", answer)
	}
	as := func(actor string, more ...string) clitest.Result {
		args := append([]string{}, line...)
		args[len(args)-1] = actor
		return p.Run("", append(args, more...)...)
	}
	as("user:ada", "--yes").Check(t, "by the same", 5, "same person")
	as("user:ada", "--yes", "--break-glass", "INC-7").Check(t, "without a reason", 2, "--reason")
	if done := as("user:ben", "--yes", "--json"); done.Code != 0 || done.Object(t)["state"] != "done" || done.Object(t)["self_declared"] != true {
		t.Errorf("%+v", done)
	}
	if list := p.Run("", "receipts", "list", "--tenant", "acme", "--transaction", "txr_1", "--json"); !strings.Contains(list.Out, `"planned_by":"user:ada"`) || !strings.Contains(list.Out, `"self_declared":true`) {
		t.Errorf("%s", list.Out)
	}
	if list := p.Run("", "receipts", "list", "--tenant", "acme", "--transaction", "txr_1"); !strings.Contains(strings.Join(strings.Fields(list.Out), " "), "statement (stmt-7); planned by user:ada; self-declared") {
		t.Errorf("%s", list.Out)
	}
	by("user:ada", "dlq", "purge", "--transaction", "txr_2", "--reason", "old", "--yes").Check(t, "a purge alone", 5, "another person")
	by("user:ada", "dlq", "retry", "--filter", `transaction_receipt_id == "txr_2"`, "--reason", "mended", "--force", "--yes").Check(t, "a plan alone", 5, "another person")
	if listed := p.Run("", "cases", "list", "--tenant", "acme", "--reserved"); listed.Code != 0 || !strings.Contains(listed.Out, "txr_2") || strings.Contains(listed.Out, "txr_1") || !strings.Contains(listed.Out, "250.00 USD reserved") {
		t.Errorf("%+v", listed)
	}
	checkStatsOfReservedMoney(t, p)
	p.Run("", "cases", "list", "--tenant", "acme", "--state", "closed").Check(t, "no such state", 2, "state")
	by("user:ada", "cases", "free", "--reason", "withdrawn", "--reference", "mail 3").Check(t, "no case is named", 2, "--transaction")
	by("user:ada", "cases", "free", "--transaction", "txr_2", "--reason", "withdrawn").Check(t, "no reference", 2, "--reference")
	by("user:ada", "cases", "free", "--transaction", "txr_9", "--reason", "withdrawn", "--reference", "mail 3").Check(t, "a transaction that is not there", 1, "tenant acme has no transaction txr_9")
	if text := by("user:ada", "cases", "free", "--state", "dispute-ready,review-needed", "--limit", "1", "--reason", "withdrawn", "--reference", "mail 3").Out; !strings.Contains(strings.Join(strings.Fields(text), " "), "selected by --state dispute-ready,review-needed --limit 1 ") {
		t.Errorf("the plan does not show how its cases were selected: %s", text)
	}
	freed := by("user:ada", "cases", "free", "--transaction", "txr_2", "--reason", "withdrawn", "--reference", "mail 3", "--json")
	freed.Check(t, "cases free", 0, "")
	plan := freed.Object(t)
	checkRefusedPlan(t, p)
	by("user:ben", "dlq", "bulk", "run", plan["id"].(string), "--hash", plan["hash"].(string), "--yes").Check(t, "bulk run", 0, "")
	broken := by("user:ada", "dlq", "reconcile", o.letter("txr_3"), "--finding", "executed", "--moved-minor", "12500", "--contradicts-record", "--reason", "statement", "--reference", "stmt-8", "--json").Object(t)
	line = shellWords(broken["run"].(string))
	if alone := as("user:ada", "--yes", "--break-glass", "INC-7", "--reason", "nobody else is awake", "--json"); alone.Code != 0 || alone.Object(t)["break_glass"] != "INC-7" {
		t.Errorf("%+v", alone)
	}
	if listed := p.Run("", "dlq", "bulk", "history", "--tenant", "acme").Out; !strings.Contains(strings.Join(strings.Fields(listed), " "), "INC-7") {
		t.Errorf("the history of plans says of no incident that one person ran their own plan: %s", listed)
	}
	if left := p.Run("", "cases", "list", "--tenant", "acme", "--json").Object(t); left["total"] != 3.0 || left["money"].(map[string]any)["USD"].(map[string]any)["reserved"] != 0.0 {
		t.Errorf("%v", left)
	}
	p.OnePerson()
	p.Run("", "people", "set", "3", "--tenant", "acme", "--actor", "a", "--reason", "b").Check(t, "three people", 2, "1 or 2")
	for what, args := range map[string][]string{"show": {"people", "show", "--tenant", "acme"}, "history": {"people", "history", "--tenant", "acme"}} {
		if shown := p.Run("", args...); shown.Code != 0 || !strings.Contains(shown.Out, "user:bob") {
			t.Errorf("%s: %+v", what, shown)
		}
	}
	if verified := p.Run("", "receipts", "verify", "--tenant", "acme"); verified.Code != 0 || !strings.Contains(verified.Out, "people: 1") {
		t.Errorf("%+v", verified)
	}
	if examined := p.Run("", "doctor"); !strings.Contains(examined.Out, "people: 1") {
		t.Errorf("%+v", examined)
	}
}

// checkStatsOfReservedMoney checks that the statistics of a tenant, and of all tenants, show where the money of two open letters is reserved.
func checkStatsOfReservedMoney(t *testing.T, p *clitest.Environment) {
	t.Helper()
	shown := strings.Join(strings.Fields(p.Run("", "dlq", "stats", "--tenant", "acme").Out), " ")
	for _, want := range []string{"with an open dead letter 2 250.00 USD", "with a live run 0", "without a letter 0", "all 2 250.00 USD"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the statistics do not have %q: %s", want, shown)
		}
	}
	all := p.Run("", "dlq", "stats", "--all-tenants", "--json").Object(t)["tenants"].([]any)
	acme := all[0].(map[string]any)
	if len(all) != 1 || acme["tenant"] != "acme" || acme["open"] != 2.0 || acme["reserved"].(map[string]any)["all"].(map[string]any)["money"].(map[string]any)["USD"] != 25000.0 {
		t.Errorf("all tenants: %v", all)
	}
	if table := strings.Join(strings.Fields(p.Run("", "dlq", "stats", "--all-tenants").Out), " "); !strings.Contains(table, "acme 2 250.00 USD 250.00 USD 250.00 USD") {
		t.Errorf("all tenants: %s", table)
	}
	p.Run("", "dlq", "stats", "--all-tenants", "--tenant", "acme").Check(t, "all and one", 2, "exclude each other")
	if none := p.Run("", "cases", "list", "--tenant", "acme", "--without-letter"); none.Code != 0 || !strings.Contains(none.Out, "No such cases") {
		t.Errorf("%+v", none)
	}
}

// checkRefusedPlan checks that a plan waits for who may run it, and that they can refuse it.
func checkRefusedPlan(t *testing.T, p *clitest.Environment) {
	t.Helper()
	by := func(actor string, args ...string) clitest.Result {
		return p.Run("", append(args, "--tenant", "acme", "--actor", actor)...)
	}
	plan := by("user:ada", "cases", "free", "--transaction", "txr_2", "--reason", "withdrawn", "--reference", "mail 4", "--json").Object(t)["id"].(string)
	for actor, waits := range map[string]bool{"user:ada": false, "user:ben": true} {
		if listed := by(actor, "dlq", "bulk", "list", "--waiting-for-me"); listed.Code != 0 || strings.Contains(listed.Out, plan) != waits {
			t.Errorf("waiting for %s: %+v", actor, listed)
		}
	}
	p.Run("", "dlq", "bulk", "list", "--tenant", "acme", "--waiting-for-me").Check(t, "waiting for nobody", 2, "--actor")
	by("user:ben", "dlq", "bulk", "refuse", plan).Check(t, "no reason", 2, "--reason")
	by("user:ada", "dlq", "bulk", "refuse", plan, "--reason", "mine").Check(t, "its author refuses it", 2, "its author can cancel it")
	if refused := by("user:ben", "dlq", "bulk", "refuse", plan, "--reason", "they will be paid", "--json"); refused.Code != 0 || refused.Object(t)["state"] != "refused" {
		t.Errorf("%+v", refused)
	}
	if listed := p.Run("", "dlq", "bulk", "history", "--tenant", "acme"); !strings.Contains(strings.Join(strings.Fields(listed.Out), " "), "they will be paid") {
		t.Errorf("the history of plans has no refusal: %s", listed.Out)
	}
	if listed := p.Run("", "dlq", "bulk", "list", "--tenant", "acme", "--state", "refused"); !strings.Contains(listed.Out, plan) {
		t.Errorf("%+v", listed)
	}
}
