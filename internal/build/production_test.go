package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const program = "github.com/recourse-dev/recourse/cmd/recourse"

// onlyDemonstrates are the packages that a production build must not have: servers to
// start, a Lua interpreter, and an escrow service that invents payments.
var onlyDemonstrates = []string{
	"github.com/alicebob/miniredis/v2",
	"github.com/yuin/gopher-lua",
	"github.com/recourse-dev/recourse/internal/child",
	"github.com/recourse-dev/recourse/internal/cli/demo",
	"github.com/recourse-dev/recourse/internal/fakeescrow",
	"github.com/recourse-dev/recourse/internal/localpg",
	"github.com/recourse-dev/recourse/testdata",
}

// module is the directory of the module.
var module = filepath.Join("..", "..")

// packages returns the packages of the program.
func packages(t *testing.T, flags ...string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"list", "-deps", "-f", "{{.ImportPath}} {{.Dir}}"}, flags, []string{program})...)
	list.Dir = module
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list.Args, err)
	}
	root, err := filepath.Abs(module)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		names = append(names, name)
		if dir == root || strings.HasPrefix(dir, root+string(filepath.Separator)) {
			read(t, dir)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(module, name)); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// read reads a directory. The go command reruns a cached test if a file changed that the test
// itself opened; it does not see what go list reads in another process.
func read(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.ReadDir(dir); err != nil {
		t.Fatal(err)
	}
}

func TestAProgramForProductionHasNoDemonstration(t *testing.T) {
	t.Parallel()
	all, production := packages(t), packages(t, "-tags", "production")
	for _, name := range onlyDemonstrates {
		if !slices.Contains(all, name) {
			t.Errorf("%s is not in the program without the tag either: name the package that replaced it", name)
		}
		if slices.Contains(production, name) {
			t.Errorf("%s is in the production program", name)
		}
	}
}
