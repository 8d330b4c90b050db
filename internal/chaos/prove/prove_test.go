package prove

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// An edit whose text has changed in the product would not remove its guard.
func TestEveryTextOfTheTableOccursOnce(t *testing.T) {
	t.Parallel()
	names, taken := map[string]bool{}, map[string]string{}
	for _, g := range Guards {
		if g.Name == "" || names[g.Name] || len(g.Edits) == 0 {
			t.Errorf("guard %q is listed twice, or has no name or no text", g.Name)
		}
		names[g.Name] = true
		// Two guards with the same edits and the same detector would be counted twice.
		what := fmt.Sprint(g.Edits, g.CaughtBy)
		if taken[what] != "" {
			t.Errorf("guard %q is %q by another name", g.Name, taken[what])
		}
		taken[what] = g.Name
		if _, err := g.overlay(root, t.TempDir()); err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
		if g.Redundant == "" && len(g.Edits) == 0 {
			t.Errorf("%s: no edit removes it", g.Name)
		}
	}
	if len(Guards) < 25 {
		t.Errorf("the table has %d guards only", len(Guards))
	}
}

// The guides say how many guards there are.
func TestTheGuidesCountTheGuards(t *testing.T) {
	t.Parallel()
	for file, says := range map[string]string{
		"README.md": "%d guards of the product", "internal/README.md": "The table has %d rows", "internal/chaos/decisions.md": "%d guards",
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if says := fmt.Sprintf(says, len(Guards)); err != nil || !strings.Contains(string(text), says) {
			t.Errorf("%s does not say %q: %v", file, says, err)
		}
	}
}

// A missing test would catch nothing.
func TestEveryDetectorExists(t *testing.T) {
	t.Parallel()
	for _, g := range Guards {
		if g.CaughtBy.Test == "" {
			if len(g.CaughtBy.Seed) == 0 {
				t.Errorf("%s: nothing catches it", g.Name)
			}
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, g.CaughtBy.Package, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		test, _, _ := strings.Cut(g.CaughtBy.Test, "/")
		found := false
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(raw), "func "+test+"(t *testing.T)")
		}
		if !found {
			t.Errorf("%s: %s has no test %s", g.Name, g.CaughtBy.Package, test)
		}
	}
}

func TestAnEditThatChangesNothingIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, find, with, want string }{
		{"a b c", "b", "d", "a d c"},
		{"a b b", "b", "d", ""},
		{"a c", "b", "d", ""},
		{"a b", "b", "b", ""},
		{"a b", "", "b", ""},
	} {
		got, err := Edit{File: "f", Text: tc.find, With: tc.with}.apply(tc.text)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
	}
}

// A try that proves nothing has another verdict than a guard that is caught.
func TestTheProverDistinguishesItsResults(t *testing.T) {
	t.Parallel()
	p := &prover{root: mustAbs(t, root), dir: t.TempDir(), env: os.Environ(), progress: t.Output(), baseline: map[string]verdict{}}
	const file = "retrypolicy/delay.go"
	by := Detector{Package: "./retrypolicy", Test: "TestDelaysDoubleFrom25msUpTo5m"}
	for name, tc := range map[string]struct {
		text, with string
		by         Detector
		want       verdict
	}{
		"a guard that a test catches": {"d *= p.Coefficient", "d *= 1 + 0*p.Coefficient", by, caught},
		"what changes nothing":        {"d *= p.Coefficient", "d = d * p.Coefficient", by, missed},
		"what does not compile":       {"d *= p.Coefficient", "d *= p.Coefficients", by, unbuilt},
		"a test that is not there":    {"d *= p.Coefficient", "d *= 1", Detector{Package: "./retrypolicy", Test: "TestNothing"}, notFound},
	} {
		p.baseline = map[string]verdict{}
		got, _, err := p.prove(t.Context(), Guard{Name: name, Edits: []Edit{{file, tc.text, tc.with}}, CaughtBy: tc.by})
		if err != nil || got != tc.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tc.want)
		}
	}
}

func mustAbs(t *testing.T, dir string) string {
	t.Helper()
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
