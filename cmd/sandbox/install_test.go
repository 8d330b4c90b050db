//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	errNoPostgres = errors.New("no postgres: get it")
	errNoRedis    = errors.New("no redis: get it")
	errBroken     = errors.New("broken")
)

// bench is an installer on an empty file system, whose apt-get installs by noting it.
type bench struct {
	installer
	have   map[string]bool
	calls  []string
	policy []string // what policy-rc.d held at each call
	fail   string   // the call that fails
}

func newBench(t *testing.T, have ...string) *bench {
	t.Helper()
	b := &bench{have: map[string]bool{}}
	for _, pkg := range have {
		b.have[pkg] = true
	}
	files := t.TempDir()
	if err := os.MkdirAll(filepath.Join(files, "usr/sbin"), 0o755); err != nil {
		t.Fatal(err)
	}
	find := func(pkg string, missing error) program {
		return program{pkg, func() (string, error) {
			if b.have[pkg] {
				return "/bin/" + pkg, nil
			}
			return "", missing
		}, missing}
	}
	b.installer = installer{
		system: "linux", root: true, files: files, human: io.Discard,
		look: func(name string) (string, error) { return "/usr/bin/" + name, nil },
		find: []program{find("postgresql", errNoPostgres), find("redis-server", errNoRedis)},
		run: func(_ context.Context, name string, args ...string) error {
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

func (b *bench) path(name string) string { return filepath.Join(b.files, name) }

// read returns a file's text, empty when it isn't there.
func (b *bench) read(name string) string {
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

func TestProvideInstallsOnlyWhatIsMissing(t *testing.T) {
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
			b := newBench(t, tt.have)
			if err := b.provide(t.Context()); err != nil {
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

func TestProvideDoesNothingWhenAllIsThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, "postgresql", "redis-server")
	if err := b.provide(t.Context()); err != nil || len(b.calls) > 0 {
		t.Errorf("ran %q, %v", b.calls, err)
	}
}

func TestProvideKeepsTheMachinesOwnFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{clusterConf, policyFile} {
		if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b.path(name), []byte("mine, exit 101"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.provide(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{clusterConf, policyFile} {
		if got := b.read(name); got != "mine, exit 101" {
			t.Errorf("%s = %q", name, got)
		}
	}
}

func TestProvideNamesTheCureWhereItMayNotInstall(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench){
		"other system": func(b *bench) { b.system = "darwin" },
		"not root":     func(b *bench) { b.root = false },
		"no apt-get":   func(b *bench) { b.look = func(string) (string, error) { return "", os.ErrNotExist } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			change(b)
			err := b.provide(t.Context())
			if err == nil || err.Error() != "no postgres: get it\nno redis: get it" || len(b.calls) > 0 {
				t.Errorf("ran %q, %v", b.calls, err)
			}
		})
	}
}

func TestProvideClearsUpAfterAFailedInstall(t *testing.T) {
	t.Parallel()
	for _, fail := range []string{"update", "install"} {
		b := newBench(t, "postgresql")
		b.fail = fail
		if err := b.provide(t.Context()); !errors.Is(err, errBroken) || !errors.Is(err, errNoRedis) {
			t.Errorf("%s: %v", fail, err)
		}
		if left := b.read(policyFile); left != "" {
			t.Errorf("%s: policy left behind: %q", fail, left)
		}
	}
}

func TestProvideInstallsNothingOverAWrongSetting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.find[0].find = func() (string, error) { return "", errBroken }
	if err := b.provide(t.Context()); !errors.Is(err, errBroken) || len(b.calls) > 0 {
		t.Errorf("ran %q, %v", b.calls, err)
	}
}
