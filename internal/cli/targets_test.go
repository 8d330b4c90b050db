package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A line with an unknown target is a bad line, and the other lines are submitted.
func TestSubmitTakesOnlyTargetsThatAreNamed(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	north := strings.Replace(clitest.LineFor("txr_2"), `{`, `{"target":"north",`, 1)
	got := p.Run(clitest.Line+north, "submit", "-", "--json")
	got.Check(t, "a target that nobody named", 1, "1 line not accepted")
	v := got.Object(t)
	if bad := v["refused"].([]any); v["bad_lines"] != 1.0 || len(bad) != 1 || bad[0].(map[string]any)["line"] != 2.0 || bad[0].(map[string]any)["field"] != "target" {
		t.Errorf("%v", v)
	}
	p.Run(north, "submit", "-", "--target", "north").Check(t, "one that a flag names", 0, "")
	p.Env[app.TargetsVariable] = "south north=https://north.example"
	p.Run(north, "submit", "-").Check(t, "one that the environment names", 0, "")
	p.Env[app.TargetsVariable] = ""
	p.Run(north, "submit", "-").Check(t, "what was accepted before", 0, "")
	p.Run(north, "submit", "-", "--target", "escrow").Check(t, "the default again", 2, "twice")
}
