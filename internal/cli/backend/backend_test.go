package backend_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// On loopback with the escrow service for demonstrations a server needs a tenant but no key. It
// returns the same answers and errors as the library.
func TestAServerAnswersAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	p.Env[app.EscrowVariable] = v["escrow"].(string) // the escrow service of the server
	p.Run(strings.Replace(clitest.Line, "{", `{"simulate":["refused","ok"],`, 1), "submit", "-").Check(t, "submit", 0, "")
	server, library := []string{"--server", v["url"].(string), "--tenant", "acme"}, []string{"--tenant", "acme"}
	ask := func(where []string, args ...string) clitest.Result {
		t.Helper()
		return p.Run("", append(append([]string{"dlq"}, args...), where...)...)
	}
	var letters []any
	for len(letters) == 0 { // bounded by the time limit of go test
		letters = ask(library, "list", "--json").Object(t)["letters"].([]any)
	}
	run := letters[0].(map[string]any)["run_id"].(string)
	ask(server[:2], "list").Check(t, "no tenant", 2, "--tenant is missing")
	planned := ask(server, "bulk", "plan", "hold", "--all", "--reason", "in court", "--json")
	planned.Check(t, "plan", 0, "")
	if planned.Object(t)["actor"] != "local" {
		t.Errorf("%s", planned.Out)
	}
	for _, args := range [][]string{{"inspect", run}, {"list", "--sort", "oldest"}, {"list", "--filter", "attempts == 1"}, {"bulk", "list"}, {"rules", "list"}, {"bulk", "show", planned.Object(t)["id"].(string)}} {
		here, there := ask(library, append(args, "--json")...), ask(server, append(args, "--json")...)
		there.Check(t, strings.Join(args, " "), 0, "")
		if a, b := withoutAges(here.Object(t)), withoutAges(there.Object(t)); !reflect.DeepEqual(a, b) {
			t.Errorf("%v: the library returned\n%.3000v\nthe server\n%.3000v", args, a, b)
		}
	}
	const nobody = "019a0000-0000-7000-8000-000000000000"
	for _, args := range [][]string{
		{"inspect", nobody}, {"list", "--currency", "euro"}, {"list", "--min-attempts", "3", "--max-attempts", "2"}, {"list", "--after", "x"}, {"bulk", "show", nobody}, {"list", "--limit", "0"}, {"list", "--filter", "nonsense("},
	} {
		here, there := ask(library, args...), ask(server, args...)
		if here.Code == 0 || here.Code != there.Code {
			t.Errorf("%v: the library refuses with\n%+v\nthe server with\n%+v", args, here, there)
		}
	}
	ask(server, "release", run, "--reason", "x").Check(t, "release", 1, "not_held")
	ask(append(library, "--actor", "ada"), "release", run, "--reason", "x").Check(t, "release", 1, "not_held")
	ask(server, "hold", nobody, "--reason", "x").Check(t, "hold", 1, "tenant acme has no letter")
}

// withoutAges removes the members that change between two answers.
func withoutAges(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "age")
		for _, member := range v {
			withoutAges(member)
		}
	case []any:
		for _, item := range v {
			withoutAges(item)
		}
	}
	return v
}
