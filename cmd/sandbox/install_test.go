//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var (
	errNoPostgres = errors.New("no postgres: get it")
	errNoRedis    = errors.New("no redis: get it")
	errBroken     = errors.New("broken")
)

// installerFixture is an installer on an empty file system, whose apt-get only records its calls.
type installerFixture struct {
	installer
	mu     sync.Mutex
	have   map[string]bool
	calls  []string
	policy []string // content of policy-rc.d at each call
	fail   string   // the call that fails
}

func newInstallerFixture(t *testing.T, have ...string) *installerFixture {
	t.Helper()
	b := &installerFixture{have: map[string]bool{}}
	for _, pkg := range have {
		b.have[pkg] = true
	}
	files := t.TempDir()
	if err := os.MkdirAll(filepath.Join(files, "usr/sbin"), 0o755); err != nil {
		t.Fatal(err)
	}
	find := func(pkg string, missing error) program {
		return program{pkg, func() (string, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.have[pkg] {
				return "/bin/" + pkg, nil
			}
			return "", missing
		}, missing}
	}
	b.installer = installer{
		system: "linux", isRoot: true, rootDir: files, messages: io.Discard,
		lookPath: func(name string) (string, error) { return "/usr/bin/" + name, nil },
		programs: []program{find("postgresql", errNoPostgres), find("redis-server", errNoRedis)},
		run: func(_ context.Context, name string, args ...string) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			call := name + " " + strings.Join(args, " ")
			b.calls = append(b.calls, call)
			b.policy = append(b.policy, b.read("usr/sbin/policy-rc.d"))
			if b.fail != "" && strings.Contains(call, b.fail) {
				return errBroken
			}
			for _, arg := range args {
				b.have[arg] = true
			}
			return nil
		},
	}
	return b
}

func (b *installerFixture) path(name string) string { return filepath.Join(b.rootDir, name) }

// read returns the text of a file, empty if it does not exist.
func (b *installerFixture) read(name string) string {
	text, err := os.ReadFile(b.path(name))
	if err != nil {
		return ""
	}
	return string(text)
}

const (
	clusterConf = "etc/postgresql-common/createcluster.conf"
	policyFile  = "usr/sbin/policy-rc.d"
	aptInstall  = "apt-get -o DPkg::Lock::Timeout=400 install -y --no-install-recommends "
)

func TestEnsureInstallsOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, have, install, conf string
	}{
		{"both", "", "postgresql redis-server", "create_main_cluster = false\n"},
		{"redis", "postgresql", "redis-server", ""},
		{"postgres", "redis-server", "postgresql", "create_main_cluster = false\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newInstallerFixture(t, tt.have)
			if err := b.ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []string{"apt-get update", aptInstall + tt.install}
			if strings.Join(b.calls, "\n") != strings.Join(want, "\n") {
				t.Errorf("ran %q, want %q", b.calls, want)
			}
			for _, policy := range b.policy {
				if !strings.Contains(policy, "exit 101") {
					t.Errorf("services could start while installing: policy %q", policy)
				}
			}
			if left := b.read(policyFile); left != "" {
				t.Errorf("policy left behind: %q", left)
			}
			if got := b.read(clusterConf); got != tt.conf {
				t.Errorf("createcluster.conf = %q, want %q", got, tt.conf)
			}
		})
	}
}

func TestOfSandboxesThatStartTogetherOneInstalls(t *testing.T) {
	t.Parallel()
	b := newInstallerFixture(t)
	installing, second := make(chan struct{}), make(chan struct{})
	run := b.run
	first := sync.OnceFunc(func() {
		close(installing)
		<-second
	})
	b.run = func(ctx context.Context, name string, args ...string) error {
		first()
		return run(ctx, name, args...)
	}
	done := make(chan error, 1)
	go func() { done <- b.ensure(t.Context()) }()
	<-installing

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.ensure(ended); !errors.Is(err, context.Canceled) || !errors.Is(err, errNoRedis) {
		t.Errorf("a sandbox that is interrupted while another installs: %v", err)
	}
	b.lookPath = func(name string) (string, error) { // called before the second sandbox locks the installer
		close(second)
		return name, nil
	}
	if err := b.ensure(t.Context()); err != nil {
		t.Errorf("the second sandbox: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("the first sandbox: %v", err)
	}
	if len(b.calls) != 2 {
		t.Errorf("ran %q, want one update and one install", b.calls)
	}
}

func TestEnsureDoesNothingWhenAllIsThere(t *testing.T) {
	t.Parallel()
	b := newInstallerFixture(t, "postgresql", "redis-server")
	if err := b.ensure(t.Context()); err != nil || len(b.calls) > 0 {
		t.Errorf("ran %q, %v", b.calls, err)
	}
}

func TestEnsureKeepsTheMachinesOwnFiles(t *testing.T) {
	t.Parallel()
	b := newInstallerFixture(t)
	for _, name := range []string{clusterConf, policyFile} {
		if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b.path(name), []byte("mine, exit 101"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{clusterConf, policyFile} {
		if got := b.read(name); got != "mine, exit 101" {
			t.Errorf("%s = %q", name, got)
		}
	}
}

func TestEnsureNamesTheRemedyWhereItMayNotInstall(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *installerFixture){
		"other system": func(b *installerFixture) { b.system = "darwin" },
		"not root":     func(b *installerFixture) { b.isRoot = false },
		"no apt-get":   func(b *installerFixture) { b.lookPath = func(string) (string, error) { return "", os.ErrNotExist } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newInstallerFixture(t)
			change(b)
			err := b.ensure(t.Context())
			if err == nil || err.Error() != "no postgres: get it\nno redis: get it" || len(b.calls) > 0 {
				t.Errorf("ran %q, %v", b.calls, err)
			}
		})
	}
}

func TestEnsureCleansUpAfterAFailedInstall(t *testing.T) {
	t.Parallel()
	for _, fail := range []string{"update", "install"} {
		b := newInstallerFixture(t, "postgresql")
		b.fail = fail
		if err := b.ensure(t.Context()); !errors.Is(err, errBroken) || !errors.Is(err, errNoRedis) {
			t.Errorf("%s: %v", fail, err)
		}
		if left := b.read(policyFile); left != "" {
			t.Errorf("%s: policy left behind: %q", fail, left)
		}
	}
}

func TestEnsureInstallsNothingOverAWrongSetting(t *testing.T) {
	t.Parallel()
	b := newInstallerFixture(t)
	b.programs[0].find = func() (string, error) { return "", errBroken }
	if err := b.ensure(t.Context()); !errors.Is(err, errBroken) || len(b.calls) > 0 {
		t.Errorf("ran %q, %v", b.calls, err)
	}
}

func TestProgramsOfTestsAreInstalledOnRequestOnly(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	servers := len(newInstaller(io.Discard, false).programs)
	var packages []string
	for _, p := range newInstaller(io.Discard, true).programs[servers:] {
		packages = append(packages, p.pkg)
		if _, err := p.find(); !errors.Is(err, p.notFound) {
			t.Errorf("%s: %v", p.pkg, err)
		}
	}
	if got := strings.Join(packages, " "); servers != 2 || got != "npm libreoffice-calc-nogui" {
		t.Errorf("%d servers, and %s", servers, got)
	}
}
