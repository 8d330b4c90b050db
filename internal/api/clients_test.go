package api_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// clientDir returns a copy of a client's program in testdata/clients, and the path of the description of the API.
func clientDir(t *testing.T, language string) (dir, description string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "clients", language))); err != nil {
		t.Fatal(err)
	}
	description, err := filepath.Abs("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	return dir, description
}

// run executes a command in a folder and returns its standard output.
func run(t *testing.T, dir, command string, args ...string) []byte {
	t.Helper()
	var problems strings.Builder
	c := exec.Command(command, args...)
	c.Dir, c.Stderr = dir, &problems
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", command, strings.Join(args, " "), err, out, problems.String())
	}
	return out
}

// Clients that others generate from the description compile without a change of it, and take an adjudication from its
// failure to settled.
func TestGeneratedClientsTakeALetterToSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	submitter, operator := r.key("acme", access.Submitter), r.key("acme", access.Operator)
	for language, journey := range map[string]func(t *testing.T, dir, description string) []byte{
		"typescript": func(t *testing.T, dir, description string) []byte {
			run(t, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
			run(t, dir, "npx", "openapi-typescript", description, "-o", "schema.ts")
			run(t, dir, "npx", "tsc")
			return run(t, dir, "node", "journey.js", r.main.URL, submitter, operator)
		},
		"go": func(t *testing.T, dir, description string) []byte {
			if err := os.Mkdir(filepath.Join(dir, "api"), 0o700); err != nil {
				t.Fatal(err)
			}
			run(t, dir, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "api/api.go", description)
			return run(t, dir, "go", "run", "./journey", r.main.URL, submitter, operator)
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir, description := clientDir(t, language)
			var got struct {
				States   []string
				Parent   bool
				Refused  string
				Receipts []string
				Verified bool
			}
			if out := journey(t, dir, description); json.Unmarshal(out, &got) != nil {
				t.Fatalf("%s", out)
			}
			if !slices.Equal(got.States, []string{"dead_lettered", "succeeded"}) || !got.Parent || got.Refused != "not_open" || !got.Verified ||
				!slices.Contains(got.Receipts, "dead-lettered") || !slices.Contains(got.Receipts, "attempt-started") {
				t.Errorf("%+v", got)
			}
		})
	}
}
