package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runBy says which text of which file runs a linter that .golangci.yaml names.
var runBy = map[string][2]string{
	"govet":         {"internal/tools/lint/main.go", "vet.Suite"},
	"staticcheck":   {".ci/lint", "/staticcheck\" ./..."},
	"unused":        {".ci/lint", "/staticcheck\" ./..."},
	"misspell":      {".ci/lint", "/misspell\" -error"},
	"bodyclose":     {"internal/tools/lint/main.go", "bodyclose.Analyzer"},
	"errcheck":      {"internal/tools/lint/main.go", "errcheck.Analyzer"},
	"errorlint":     {"internal/tools/lint/main.go", "errorlint.NewAnalyzer("},
	"ineffassign":   {"internal/tools/lint/main.go", "ineffassign.Analyzer"},
	"rowserrcheck":  {"internal/tools/lint/main.go", "rowserr.NewAnalyzer("},
	"sqlclosecheck": {"internal/tools/lint/main.go", "analyzer.NewAnalyzer("},
}

// Editors and CI find the same.
func TestLintersOfEditorsAreThoseOfCI(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	config, lint := read(".golangci.yaml"), read("internal/tools/lint/main.go")
	_, enabled, found := strings.Cut(config, "  enable:\n")
	enabled, _, ended := strings.Cut(enabled, "  settings:\n")
	if !found || !ended {
		t.Fatal(".golangci.yaml does not list linters and settings in the form that is read here")
	}
	names := regexp.MustCompile(`(?m)^    - (\w+)$`).FindAllStringSubmatch(enabled, -1)
	if len(names) != len(runBy) {
		t.Errorf("%d linters for editors, %d in CI", len(names), len(runBy))
	}
	for _, name := range names {
		if by, known := runBy[name[1]]; !known || !strings.Contains(read(by[0]), by[1]) {
			t.Errorf("CI does not run %s", name[1])
		}
	}
	var forEditors, inCI []string
	for _, m := range regexp.MustCompile(`(?m)^        - (\(.*)$`).FindAllStringSubmatch(config, -1) {
		forEditors = append(forEditors, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\t"(\(.*)",`).FindAllStringSubmatch(lint, -1) {
		inCI = append(inCI, m[1])
	}
	if len(inCI) == 0 || !slices.Equal(forEditors, inCI) {
		t.Errorf("errors that may be dropped: %q for editors, %q in CI", forEditors, inCI)
	}
}
