package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A pattern of go test -run that matches no test passes, so CI would not say that a test of
// internal/chaos is no longer run under the race detector. What the one run skips, the other has to run.
func TestCINamesTestsThatExist(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", ".ci", "test"))
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`(?m)^meet='\^\((.*)\)\$'$`).FindSubmatch(script)
	if pattern == nil {
		t.Fatal("the tests of internal/chaos under the race detector were not found")
	}
	for _, run := range []string{`tested -skip "$meet" "${without[@]}" `, `tested -race -run "$meet" ./internal/chaos `} {
		if !strings.Contains(string(script), run) {
			t.Errorf(".ci/test does not have: %s", run)
		}
	}
	files, err := filepath.Glob(filepath.Join("..", "chaos", "*_test.go"))
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
	for name := range strings.SplitSeq(string(pattern[1]), "|") {
		if !regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`).MatchString(tests.String()) {
			t.Errorf(".ci/test runs %s, and internal/chaos has no such test", name)
		}
	}
}
