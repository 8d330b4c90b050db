//go:build unix

package localpg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// programs makes an executable file for each name in dir.
func programs(t *testing.T, dir string, names ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindKeepsItsOrder(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	chosen := programs(t, filepath.Join(root, "chosen"), "initdb", "postgres")
	programs(t, filepath.Join(root, "deb/9.6/bin"), "initdb", "postgres")
	newest := programs(t, filepath.Join(root, "deb/15/bin"), "initdb", "postgres")
	programs(t, filepath.Join(root, "deb/17/bin"), "initdb") // its server package is missing
	onPath := programs(t, filepath.Join(root, "cellar"), "initdb", "postgres")
	half := programs(t, filepath.Join(root, "half"), "initdb")
	link := filepath.Join(root, "initdb")
	if err := os.Symlink(filepath.Join(onPath, "initdb"), link); err != nil {
		t.Fatal(err)
	}
	debian, none := filepath.Join(root, "deb/*/bin"), filepath.Join(root, "none/*/bin")
	path := func(answer string) func(string) (string, error) {
		return func(string) (string, error) {
			if answer == "" {
				return "", errors.New("not on PATH")
			}
			return answer, nil
		}
	}
	tests := []struct {
		name, chosen, pattern, path, want string
	}{
		{"PG_BINDIR first", chosen, debian, link, chosen},
		{"then the newest complete version", "", debian, link, newest},
		{"then PATH, links followed", "", none, link, onPath},
		{"else not found", "", none, "", ""},
		{"initdb alone is not found", "", none, filepath.Join(half, "initdb"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := find(tt.chosen, tt.pattern, path(tt.path))
			if got != tt.want || (tt.want == "") != errors.Is(err, ErrNotFound) {
				t.Errorf("find = %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	if _, err := find(half, debian, path(link)); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), half) {
		t.Errorf("a wrong PG_BINDIR must be named, got %v", err)
	}
}

func TestErrNotFoundIsOneLineWithEveryRemedy(t *testing.T) {
	t.Parallel()
	for _, remedy := range []string{"apt-get", "brew", "dnf", "PG_BINDIR"} {
		if !strings.Contains(ErrNotFound.Error(), remedy) {
			t.Errorf("%s is not mentioned", remedy)
		}
	}
	if strings.Contains(ErrNotFound.Error(), "\n") {
		t.Error("more than one line")
	}
}
