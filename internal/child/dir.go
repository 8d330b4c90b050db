//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file that the owner of a temporary directory keeps locked: a process id alone does not identify a
// process in another container that shares the directory.
const lockName = "owner.lock"

// Dir is the directory of a server.
type Dir struct {
	Path string
	lock *os.File // nil: a persistent directory
}

// PersistentDir returns a directory that Close keeps. It makes a missing one.
func PersistentDir(path string, as *Identity) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return &Dir{Path: path}, as.CanReach(path)
}

// TempDir makes a directory recourse-<kind>-<own pid>-<random> in the first of the roots that as can reach. First it
// removes such directories of dead processes, calling cleanup with the path of each before.
func TempDir(kind string, roots []string, as *Identity, cleanup func(path string) error) (*Dir, error) {
	var errs error
	for _, root := range roots {
		if err := as.CanReach(root); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		sweepErr := sweep(root, kind, cleanup)
		path, err := os.MkdirTemp(root, fmt.Sprintf("recourse-%s-%d-", kind, os.Getpid()))
		if err != nil {
			errs = errors.Join(errs, err, sweepErr)
			continue
		}
		d := &Dir{Path: path}
		if d.lock, err = lock(filepath.Join(path, lockName)); err == nil {
			err = os.Chmod(path, 0o711)
		}
		if err = errors.Join(err, sweepErr); err != nil {
			return nil, errors.Join(err, d.close())
		}
		return d, nil
	}
	return nil, fmt.Errorf("no directory for a private server: %w", errs)
}

// Temporary reports whether Close removes the directory.
func (d *Dir) Temporary() bool { return d.lock != nil }

// Close removes a temporary directory, and keeps a persistent one.
func (d *Dir) Close() error {
	if !d.Temporary() {
		return nil
	}
	return d.close()
}

func (d *Dir) close() error {
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// lock opens and locks a file; the kernel unlocks it when this process dies. EWOULDBLOCK: another process has the lock.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes the directories of this kind with a dead owner. It returns an error for those that it can never remove.
func sweep(root, kind string, cleanup func(path string) error) error {
	prefix := "recourse-" + kind + "-"
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var errs error
	for _, entry := range entries {
		pid, ok := ownerPID(entry.Name(), prefix)
		if !ok || processExists(pid) || !ownedByUs(entry) {
			continue
		}
		path := filepath.Join(root, entry.Name())
		owner, err := lock(filepath.Join(path, lockName))
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // its owner lives in another container, or another process is sweeping it
		}
		if err == nil {
			d := Dir{Path: path, lock: owner}
			err = errors.Join(cleanup(path), d.close())
		}
		if errors.Is(err, syscall.ENOTEMPTY) {
			continue // its server is still shutting down: a later start sweeps it
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

func ownerPID(name, prefix string) (int, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(digits)
	return pid, ok && err == nil && pid > 0
}

func processExists(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func ownedByUs(entry os.DirEntry) bool {
	info, err := entry.Info()
	if err != nil || !info.IsDir() {
		return false // removed in the meantime, or no such directory
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// TempRoots returns the roots for temporary directories, best first: in memory if nothing need be durable and there is
// enough memory, then the system's temporary directory, then those of every Unix.
func TempRoots(durable bool) []string {
	roots := []string{os.TempDir(), "/tmp", "/var/tmp"}
	if memory := memoryRoot(); memory != "" && !durable {
		roots = append([]string{memory}, roots...)
	}
	return roots
}
