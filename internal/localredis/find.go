//go:build unix

package localredis

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotFound says that this machine has no redis-server, and in one line how to get it.
var ErrNotFound = errors.New("no redis-server found: `sudo apt-get install redis-server` (Debian, Ubuntu), " +
	"`brew install redis` (macOS), `sudo dnf install redis` (Fedora), or set REDIS_BINDIR")

// Find returns the path of redis-server: in REDIS_BINDIR if set (then nothing else will do), else on PATH, else
// ErrNotFound.
func Find() (string, error) {
	const program = "redis-server"
	if dir := os.Getenv("REDIS_BINDIR"); dir != "" {
		path, err := exec.LookPath(filepath.Join(dir, program))
		if err != nil {
			return "", fmt.Errorf("REDIS_BINDIR=%s does not hold the program %s", dir, program)
		}
		return filepath.Abs(path)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", ErrNotFound
	}
	return filepath.Abs(path)
}
