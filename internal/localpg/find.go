//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNotFound reports that this machine has no PostgreSQL binaries, and how to install them.
var ErrNotFound = errors.New("no PostgreSQL found: `sudo apt-get install postgresql` (Debian, Ubuntu), " +
	"`brew install postgresql` (macOS), `sudo dnf install postgresql-server` (Fedora), or set PG_BINDIR")

// debianBinaries is where Debian and its derivatives install the binaries of each major version, outside the PATH.
const debianBinaries = "/usr/lib/postgresql/*/bin"

// Find returns the directory of initdb and postgres: PG_BINDIR if set, and then no other; the newest version under
// /usr/lib/postgresql; the directory of the initdb on PATH, with links resolved; else ErrNotFound.
func Find() (string, error) {
	return find(os.Getenv("PG_BINDIR"), debianBinaries, exec.LookPath)
}

func find(configured, pattern string, lookPath func(string) (string, error)) (string, error) {
	if configured != "" {
		if !hasBinaries(configured) {
			return "", fmt.Errorf("PG_BINDIR=%s does not have the programs initdb and postgres", configured)
		}
		return filepath.Abs(configured)
	}
	installed, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	newest, newestVersion := "", -1.0
	for _, dir := range installed {
		version, err := strconv.ParseFloat(filepath.Base(filepath.Dir(dir)), 64)
		if err == nil && version > newestVersion && hasBinaries(dir) {
			newest, newestVersion = dir, version
		}
	}
	if newest != "" {
		return newest, nil
	}
	initdb, err := lookPath("initdb")
	if err != nil {
		return "", ErrNotFound
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return "", err
	}
	if dir := filepath.Dir(initdb); hasBinaries(dir) {
		return filepath.Abs(dir)
	}
	return "", ErrNotFound
}

// hasBinaries reports whether a directory has both programs.
func hasBinaries(dir string) bool {
	for _, program := range [...]string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// dataVersion returns the version in the file PG_VERSION of a data directory.
func dataVersion(data string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	return strings.TrimSpace(string(text)), err
}
