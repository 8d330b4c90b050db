//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
)

const postgresPackage = "postgresql"

// lockPause is how long a sandbox waits before it tries again to lock the installer.
const lockPause = 50 * time.Millisecond

// installer installs the servers' programs.
type installer struct {
	system   string // as runtime.GOOS
	isRoot   bool   // installing is allowed
	rootDir  string // root of the file system
	messages io.Writer
	programs []program
	run      func(ctx context.Context, name string, args ...string) error
	lookPath func(name string) (string, error)
}

// program is a required program: its package, and how to find it.
type program struct {
	pkg      string
	find     func() (string, error)
	notFound error
}

// errNoNode means that Node.js or npm is missing.
var errNoNode = errors.New("no npm was found: install Node.js with npm, on Debian with apt-get install npm")

// findNode returns where npm is, which Debian installs with Node.js.
func findNode() (string, error) {
	path, err := exec.LookPath("npm")
	if errors.Is(err, exec.ErrNotFound) {
		err = errNoNode
	}
	return path, err
}

// errNoSpreadsheet means that LibreOffice is missing.
var errNoSpreadsheet = errors.New("no soffice was found: install LibreOffice Calc, on Debian with apt-get install libreoffice-calc-nogui")

// findSpreadsheet returns where LibreOffice, a spreadsheet, is.
func findSpreadsheet() (string, error) {
	path, err := exec.LookPath("soffice")
	if errors.Is(err, exec.ErrNotFound) {
		err = errNoSpreadsheet
	}
	return path, err
}

// newInstaller returns the installer for this machine. testPrograms adds those that tests run.
func newInstaller(messages io.Writer, testPrograms bool) installer {
	m := installer{
		system: runtime.GOOS, isRoot: os.Geteuid() == 0, rootDir: "/", messages: messages, lookPath: exec.LookPath,
		programs: []program{
			{postgresPackage, localpg.Find, localpg.ErrNotFound},
			{"redis-server", localredis.Find, localredis.ErrNotFound},
		},
		run: func(ctx context.Context, name string, args ...string) error {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			cmd.Stdout, cmd.Stderr = messages, messages
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
			cmd.WaitDelay = time.Minute // killing a package manager can leave the machine broken
			return cmd.Run()
		},
	}
	if testPrograms {
		m.programs = append(m.programs, program{"npm", findNode, errNoNode}, program{"libreoffice-calc-nogui", findSpreadsheet, errNoSpreadsheet})
	}
	return m
}

// ensure installs missing programs if that is allowed, and returns nil if all are there. Its error has one line for each
// missing program, with the fix.
func (m installer) ensure(ctx context.Context) (err error) {
	_, missing, err := m.missing()
	if err != nil || missing == nil {
		return err
	}
	if _, notThere := m.lookPath("apt-get"); m.system != "linux" || !m.isRoot || notThere != nil {
		return missing
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return errors.Join(err, missing)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	packages, missing, err := m.missing()
	if err != nil || missing == nil {
		return err // another sandbox has installed them
	}
	printf(m.messages, "sandbox: installing %s\n", strings.Join(packages, " and "))
	if err := m.install(ctx, packages); err != nil {
		return fmt.Errorf("installing %s: %w\n%w", strings.Join(packages, " and "), err, missing)
	}
	_, missing, err = m.missing()
	return errors.Join(err, missing)
}

// lock blocks until no other sandbox of this machine installs programs: of two that run apt-get update, one fails.
func (m installer) lock(ctx context.Context) (unlock func() error, err error) {
	dir := filepath.Join(m.rootDir, "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "recourse-sandbox.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil // which unlocks it
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(lockPause):
		}
	}
}

// missing returns the packages of the programs that cannot be found, and the joined errors of find.
func (m installer) missing() (packages []string, missing, err error) {
	for _, p := range m.programs {
		_, e := p.find()
		switch {
		case e == nil:
		case errors.Is(e, p.notFound):
			packages = append(packages, p.pkg)
			missing = errors.Join(missing, e)
		default:
			err = errors.Join(err, e)
		}
	}
	return packages, missing, err
}

// install installs packages with apt-get without starting a server on a standard port.
func (m installer) install(ctx context.Context, packages []string) (err error) {
	if slices.Contains(packages, postgresPackage) {
		if err := m.forbidCluster(); err != nil {
			return err
		}
	}
	allowStart, err := m.forbidStart()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, allowStart()) }()
	if err := m.run(ctx, "apt-get", "update"); err != nil {
		return fmt.Errorf("apt-get update: %w", err)
	}
	args := append([]string{"-o", "DPkg::Lock::Timeout=400", "install", "-y", "--no-install-recommends"}, packages...)
	if err := m.run(ctx, "apt-get", args...); err != nil {
		return fmt.Errorf("apt-get install: %w", err)
	}
	return nil
}

// forbidCluster keeps Debian's package from creating a cluster on port 5432, unless the machine has its own configuration.
func (m installer) forbidCluster() error {
	dir := filepath.Join(m.rootDir, "etc/postgresql-common")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := create(filepath.Join(dir, "createcluster.conf"), "create_main_cluster = false\n", 0o644)
	return err
}

// forbidStart keeps Debian's packages from starting their services, until allow is called. An existing policy of the
// machine is kept.
func (m installer) forbidStart() (allow func() error, err error) {
	path := filepath.Join(m.rootDir, "usr/sbin/policy-rc.d")
	created, err := create(path, "#!/bin/sh\nexit 101\n", 0o755)
	if err != nil {
		return nil, err
	}
	return func() error {
		if !created {
			return nil
		}
		return os.Remove(path)
	}, nil
}

// create writes a file unless it exists, and reports whether it did.
func create(path, text string, mode os.FileMode) (bool, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(text)
	// Chmod, because the umask may have kept others from reading the file.
	if err = errors.Join(err, f.Close(), os.Chmod(path, mode)); err != nil {
		return false, errors.Join(err, os.Remove(path))
	}
	return true, nil
}
