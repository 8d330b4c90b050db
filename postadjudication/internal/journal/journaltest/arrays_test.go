package journaltest_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// Each package with statements that take arrays has a test that calls CheckArrayStatementsAreTried.
func TestEachPackageTriesItsStatementsWithArrays(t *testing.T) {
	t.Parallel()
	packages, calls := map[string]bool{}, map[string]bool{}
	root := os.DirFS("../../..")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		packages[path.Dir(name)] = true
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if strings.Contains(string(text), "journaltest.CheckArrayStatementsAreTried(t, os.DirFS(\".\"),") {
			calls[path.Dir(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(packages, "internal/journal/journaltest") // its own pattern matches itself
	for dir := range packages {
		in, err := fs.Sub(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		if takes := journaltest.ArrayDeclarations(t, in); len(takes) > 0 && !calls[dir] {
			t.Errorf("no test of %s tries %v, which take arrays", dir, slices.Sorted(maps.Keys(takes)))
		}
	}
	if len(calls) < 5 {
		t.Errorf("only %v try their statements", slices.Sorted(maps.Keys(calls)))
	}
}
