package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// .ci/test names the tests that run under the race detector in packages that it does not watch otherwise. go
// test accepts a pattern that matches no test, so each name must have one. What one command skips another
// one runs, and the one that skips has more packages: no other may name a test as internal/chaos does.
func TestCINamesTestsThatExist(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", ".ci", "test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{
		`tested -skip "$meet" "${without[@]}" `, `tested -race -run "$meet" ./internal/chaos `, `tested -race -run "$at_once" ./internal/api `,
	} {
		if !strings.Contains(string(script), run) {
			t.Errorf(".ci/test does not have: %s", run)
		}
	}
	skipped := regexp.MustCompile(`(?m)^meet='(.*)'$`).FindSubmatch(script)
	if skipped == nil {
		t.Fatal(".ci/test does not set meet")
	}
	skips := regexp.MustCompile(string(skipped[1]))
	for _, name := range testsOutside(t, "internal/chaos") {
		if skips.MatchString(name) {
			t.Errorf(".ci/test would skip %s: only tests of internal/chaos may have such a name", name)
		}
	}
	for _, c := range []struct{ variable, pattern, dir string }{
		{"meet", `(?m)^meet='\^\((.*)\)\$'$`, "chaos"},
		{"at_once", `(?m)^at_once='\^Test\((.*)\)\.\*\$'$`, "api"},
	} {
		names := regexp.MustCompile(c.pattern).FindSubmatch(script)
		if names == nil {
			t.Fatalf("no tests of internal/%s were found in %s", c.dir, c.variable)
		}
		tests := testSource(t, c.dir)
		for name := range strings.SplitSeq(string(names[1]), "|") {
			if c.variable == "at_once" {
				name = "Test" + name + ".*"
			}
			if !regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`).MatchString(tests) {
				t.Errorf(".ci/test runs %s, and internal/%s has no such test", name, c.dir)
			}
		}
	}
}

// testsOutside returns the names of the tests of all packages but dir.
func testsOutside(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, f := range sources(t) {
		if f.dir == dir || !strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
				names = append(names, fn.Name.Name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no test outside %s was found", dir)
	}
	return names
}

// testSource returns the source of the tests of a package in internal.
func testSource(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	return tests.String()
}
