package cli_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/demo"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/testdata"
)

// onePerson lets one person do what takes two elsewhere: most tests are of what is done.
func (p *place) onePerson() {
	p.t.Helper()
	p.exec(`INSERT INTO recourse.installation (demonstration) VALUES (true) ON CONFLICT DO NOTHING`) // --embedded was here while it was empty
	p.run("", "people", "set", "1", "--tenant", "acme", "--actor", "user:root", "--reason", "test").wants(p.t, "people set", 0, "")
}

// words reads the command line that an answer prints for somebody else to type.
func words(line string) []string {
	return strings.Fields(strings.TrimPrefix(line, "recourse "))
}

// Who states money by hand beside the database is told what somebody else has to type, and does
// it neither alone nor by the same name.
func TestWhatTakesTwoIsPlannedAndRunByAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	_, stop := p.served("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	var in strings.Builder
	for _, n := range []string{"1", "2", "3"} {
		in.WriteString(strings.NewReplacer("txr_1", "txr_"+n, "sub_1", "sub_"+n, "adj_1", "adj_"+n, "esc_1", "esc_"+n, "{\"transaction", `{"simulate":["refused"],"transaction`).Replace(line))
	}
	p.run(in.String(), "submit", "-").wants(t, "submit", 0, "")
	o := &operator{place: p}
	run := o.letter("txr_1")
	o.letter("txr_2")
	o.letter("txr_3")
	by := func(actor string, args ...string) said {
		return p.run("", append(args, "--tenant", "acme", "--actor", actor)...)
	}
	finding := []string{"dlq", "reconcile", run, "--finding", "executed", "--moved", "12500", "--reason", "statement", "--reference", "stmt-7"}
	shown := by("user:ada", finding...)
	if shown.wants(t, "a finding alone", 5, "somebody else"); !strings.Contains(shown.out, "recourse dlq bulk run") || !strings.Contains(shown.out, "--actor NAME") || !strings.Contains(shown.out, "executed, 125.00 USD moved, stmt-7") || !strings.Contains(shown.out, "txr_") {
		t.Errorf("%s", shown.out)
	}
	by("user:ada", finding[:len(finding)-2]...).wants(t, "no reference of a finding", 2, "--reference must be")
	told := by("user:ada", append(finding, "--json")...)
	told.wants(t, "a finding alone", 5, "somebody else")
	answer := told.object(t)
	line := words(answer["run"].(string))
	if answer["code"] != "second_person_required" || line[len(line)-1] != "NAME" {
		t.Fatalf("%v", answer)
	}
	as := func(actor string, more ...string) said {
		args := append([]string{}, line...)
		args[len(args)-1] = actor
		return p.run("", append(args, more...)...)
	}
	as("user:ada", "--yes").wants(t, "by the same", 5, "same person")
	as("user:ada", "--yes", "--break-glass", "INC-7").wants(t, "without a reason", 2, "--reason")
	if done := as("user:ben", "--yes", "--json"); done.code != 0 || done.object(t)["state"] != "done" || done.object(t)["self_declared"] != true {
		t.Errorf("%+v", done)
	}
	if list := p.run("", "receipts", "list", "--tenant", "acme", "--transaction", "txr_1", "--json"); !strings.Contains(list.out, `"planned_by":"user:ada"`) || !strings.Contains(list.out, `"self_declared":true`) {
		t.Errorf("%s", list.out)
	}
	if list := p.run("", "receipts", "list", "--tenant", "acme", "--transaction", "txr_1"); !strings.Contains(strings.Join(strings.Fields(list.out), " "), "statement (stmt-7); planned by user:ada; self-declared") {
		t.Errorf("%s", list.out)
	}
	by("user:ada", "dlq", "purge", "--transaction", "txr_2", "--reason", "old", "--yes").wants(t, "a purge alone", 5, "somebody else")
	by("user:ada", "dlq", "retry", "--filter", `transaction_receipt_id == "txr_2"`, "--reason", "mended", "--force", "--yes").wants(t, "a plan alone", 5, "somebody else")
	if listed := p.run("", "cases", "list", "--tenant", "acme", "--reserved"); listed.code != 0 || !strings.Contains(listed.out, "txr_2") || strings.Contains(listed.out, "txr_1") || !strings.Contains(listed.out, "250.00 USD reserved") {
		t.Errorf("%+v", listed)
	}
	p.run("", "cases", "list", "--tenant", "acme", "--state", "closed").wants(t, "no such state", 2, "state")
	by("user:ada", "cases", "free", "--reason", "withdrawn", "--reference", "mail 3").wants(t, "no case is named", 2, "--transaction")
	by("user:ada", "cases", "free", "--transaction", "txr_2", "--reason", "withdrawn").wants(t, "no reference", 2, "--reference")
	by("user:ada", "cases", "free", "--transaction", "txr_9", "--reason", "withdrawn", "--reference", "mail 3").wants(t, "a transaction that is not there", 1, "tenant acme has no transaction txr_9")
	freed := by("user:ada", "cases", "free", "--transaction", "txr_2", "--reason", "withdrawn", "--reference", "mail 3", "--json")
	freed.wants(t, "cases free", 0, "")
	plan := freed.object(t)
	by("user:ben", "dlq", "bulk", "run", plan["id"].(string), "--hash", plan["hash"].(string), "--yes").wants(t, "bulk run", 0, "")
	broken := by("user:ada", "dlq", "reconcile", o.letter("txr_3"), "--finding", "executed", "--moved", "12500", "--reason", "statement", "--reference", "stmt-8", "--json").object(t)
	line = words(broken["run"].(string))
	if alone := as("user:ada", "--yes", "--break-glass", "INC-7", "--reason", "nobody else is awake", "--json"); alone.code != 0 || alone.object(t)["break_glass"] != "INC-7" {
		t.Errorf("%+v", alone)
	}
	if left := p.run("", "cases", "list", "--tenant", "acme", "--json").object(t); left["total"] != 3.0 || left["money"].(map[string]any)["USD"].(map[string]any)["reserved"] != 0.0 {
		t.Errorf("%v", left)
	}
	p.onePerson()
	p.run("", "people", "set", "3", "--tenant", "acme", "--actor", "a", "--reason", "b").wants(t, "three people", 2, "1 or 2")
	for what, args := range map[string][]string{"show": {"people", "show", "--tenant", "acme"}, "history": {"people", "history", "--tenant", "acme"}} {
		if shown := p.run("", args...); shown.code != 0 || !strings.Contains(shown.out, "user:root") {
			t.Errorf("%s: %+v", what, shown)
		}
	}
	if verified := p.run("", "receipts", "verify", "--tenant", "acme"); verified.code != 0 || !strings.Contains(verified.out, "people: 1") {
		t.Errorf("%+v", verified)
	}
	if examined := p.run("", "doctor"); !strings.Contains(examined.out, "people: 1") {
		t.Errorf("%+v", examined)
	}
}

// withPassword is a URL with the password of another one.
func withPassword(t *testing.T, bare, of string) string {
	t.Helper()
	u, err := url.Parse(bare)
	if err != nil {
		t.Fatal(err)
	}
	from, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	u.User = from.User
	return u.String()
}

// The first hour of the operators' guide (cmd/recourse/README.md), played by two: user:ada plans, user:ben lets run.
func TestTheFirstHourIsPlayedByTwo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	d, err := demo.Start(t.Context(), demo.Options{Input: strings.NewReader(string(testdata.Adjudications)), DatabaseURL: p.url, Listen: "127.0.0.1:0"})
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Play(t.Context()); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	database, err := d.Database()
	if err != nil {
		t.Fatal(err)
	}
	database = withPassword(t, database, p.url)
	const tenant = "northwind-homes"
	keys := map[string]string{}
	for _, name := range []string{"user:ada", "user:ben"} {
		made := p.run("", "keys", "create", "--database", database, "--tenant", tenant, "--principal", name, "--roles", "operator,approver", "--actor", "root", "--reason", "demo", "--json")
		made.wants(t, "keys create", 0, "")
		keys[name] = made.object(t)["token"].(string)
	}
	as := func(name string, args ...string) said {
		env := map[string]string{"RECOURSE_KEY": keys[name]}
		return execute(t.Context(), env, strings.NewReader(""), append(args, "--server", d.URL())...)
	}
	plan := as("user:ada", "dlq", "bulk", "plan", "fork", "--reason", "mended", "--error-type", "http.rate_limited", "--json")
	plan.wants(t, "bulk plan", 0, "")
	id, hash := plan.object(t)["id"].(string), plan.object(t)["hash"].(string)
	as("user:ada", "dlq", "bulk", "run", id, "--hash", hash, "--yes").wants(t, "ada alone", 5, "user:ada")
	if done := as("user:ben", "dlq", "bulk", "run", id, "--hash", hash, "--yes", "--json"); done.code != 0 || done.object(t)["state"] != "done" {
		t.Errorf("%+v", done)
	}
	if letters := as("user:ada", "cases", "list", "--reserved"); letters.code != 0 || !strings.Contains(letters.out, "dead_letter") {
		t.Errorf("%+v", letters)
	}
	p.run("", "receipts", "verify", "--tenant", tenant, "--database", database).wants(t, "verify", 0, "")
}
