package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A line with a target that is not named is a bad line, and the others go in.
func TestSubmitTakesOnlyTargetsThatAreNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	north := strings.Replace(another("txr_2"), `{`, `{"target":"north",`, 1)
	got := p.run(line+north, "submit", "-", "--json")
	got.wants(t, "a target that nobody named", 1, "1 line not accepted")
	v := got.object(t)
	if bad := v["refused"].([]any); v["bad_lines"] != 1.0 || len(bad) != 1 || bad[0].(map[string]any)["line"] != 2.0 || bad[0].(map[string]any)["field"] != "target" {
		t.Errorf("%v", v)
	}
	p.run(north, "submit", "-", "--target", "north").wants(t, "one that a flag names", 0, "")
	p.env[app.TargetsVariable] = "south north=https://north.example"
	p.run(north, "submit", "-").wants(t, "one that the environment names", 0, "")
	p.env[app.TargetsVariable] = ""
	p.run(north, "submit", "-").wants(t, "what was accepted before", 0, "")
	p.run(north, "submit", "-", "--target", "escrow").wants(t, "the default again", 2, "twice")
}
