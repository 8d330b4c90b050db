package build

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const program = "github.com/recourse-dev/recourse/cmd/recourse"

// onlyDemonstrates are the packages that a program built for production does not have: servers
// that it would start, a Lua interpreter, and an escrow service that invents payments.
var onlyDemonstrates = []string{
	"github.com/alicebob/miniredis/v2",
	"github.com/yuin/gopher-lua",
	"github.com/recourse-dev/recourse/internal/child",
	"github.com/recourse-dev/recourse/internal/cli/demo",
	"github.com/recourse-dev/recourse/internal/fakeescrow",
	"github.com/recourse-dev/recourse/internal/localpg",
	"github.com/recourse-dev/recourse/testdata",
}

// packages lists what the program is made of.
func packages(t *testing.T, flags ...string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"list", "-deps"}, flags, []string{program})...)
	list.Dir = filepath.Join("..", "..")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list.Args, err)
	}
	return strings.Fields(string(out))
}

func TestAProgramForProductionHasNoDemonstration(t *testing.T) {
	t.Parallel()
	all, production := packages(t), packages(t, "-tags", "production")
	for _, name := range onlyDemonstrates {
		if !slices.Contains(all, name) {
			t.Errorf("%s is not in the program without the tag either: name what is there in its place", name)
		}
		if slices.Contains(production, name) {
			t.Errorf("%s is in a program for production", name)
		}
	}
}
