package cli_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/cli/demo"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/testdata"
)

// withPassword returns a URL with the password of another one.
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

// The first hour of the operators' guide (cmd/recourse/README.md), with two people: user:ada plans, user:ben runs the plans.
func TestTheFirstHourTakesTwoPeople(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	d, err := demo.Start(t.Context(), demo.Options{Input: strings.NewReader(string(testdata.Adjudications)), DatabaseURL: p.URL, OwnerURL: testkit.Owner(t, p.URL), Listen: "127.0.0.1:0"})
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Run(t.Context()); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	database, err := d.Database()
	if err != nil {
		t.Fatal(err)
	}
	database = withPassword(t, database, p.URL)
	const tenant = "northwind-homes"
	keys := map[string]string{}
	for _, name := range []string{"user:ada", "user:ben"} {
		made := p.Run("", "keys", "create", "--database", database, "--tenant", tenant, "--principal", name, "--roles", "operator,approver", "--actor", "root", "--reason", "demo", "--json")
		made.Check(t, "keys create", 0, "")
		keys[name] = made.Object(t)["token"].(string)
	}
	as := func(name string, args ...string) clitest.Result {
		env := map[string]string{"RECOURSE_KEY": keys[name]}
		return clitest.Execute(t.Context(), env, strings.NewReader(""), append(args, "--server", d.URL())...)
	}
	dead := as("user:ada", "dlq", "list", "--error-type", "http.rate_limited", "--json").Object(t)["letters"].([]any)[0].(map[string]any)["run_id"].(string)
	forked := as("user:ada", "dlq", "fork", dead, "--reason", "try again", "--json")
	forked.Check(t, "fork", 0, "")
	newest := forked.Object(t)["run_id"].(string)
	poll.Until(t, "the death of the fork", func() bool { return as("user:ada", "dlq", "inspect", newest).Code == 0 })
	as("user:ada", "dlq", "fork", dead, "--reason", "try again").Check(t, "fork of what was forked", 1, "its newest run is "+newest+", an open dead letter: fork that, or use recourse dlq retry")
	plan := as("user:ada", "dlq", "bulk", "plan", "fork", "--reason", "mended", "--error-type", "http.rate_limited", "--json")
	plan.Check(t, "bulk plan", 0, "")
	id, hash := plan.Object(t)["id"].(string), plan.Object(t)["hash"].(string)
	as("user:ada", "dlq", "bulk", "run", id, "--hash", hash, "--yes").Check(t, "ada alone", 5, "second_person_required: another person than user:ada")
	if done := as("user:ben", "dlq", "bulk", "run", id, "--hash", hash, "--yes", "--json"); done.Code != 0 || done.Object(t)["state"] != "done" {
		t.Errorf("%+v", done)
	}
	if letters := as("user:ada", "cases", "list", "--reserved"); letters.Code != 0 || !strings.Contains(letters.Out, "dead_letter") {
		t.Errorf("%+v", letters)
	}
	p.Run("", "receipts", "verify", "--tenant", tenant, "--database", database).Check(t, "verify", 0, "")
}
