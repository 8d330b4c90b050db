//go:build unix

package localredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/child"
)

// TestMain fails if any test's server left a directory behind.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, root := range child.TempRoots(false) {
		left, err := filepath.Glob(filepath.Join(root, fmt.Sprintf("recourse-redis-%d-*", os.Getpid())))
		if err != nil || len(left) > 0 {
			fmt.Fprintln(os.Stderr, "left behind:", left, err)
			code = 1
		}
	}
	os.Exit(code)
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// withClient runs f with a new client.
func withClient(t *testing.T, s *Server, f func(ctx context.Context, c *redis.Client) error) {
	t.Helper()
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	if err := errors.Join(f(t.Context(), c), c.Close()); err != nil {
		t.Error(err)
	}
}

func setKey(ctx context.Context, c *redis.Client) error { return c.Set(ctx, "k", "v", 0).Err() }

func TestRestartFindsItEmptyOnTheSameAddress(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	addr := s.Addr()
	for name, again := range map[string]func() error{
		"restart": func() error { return s.Restart(t.Context()) },
		"kill":    func() error { return errors.Join(s.Kill(), s.Kill(), s.Restart(t.Context())) },
	} {
		withClient(t, s, setKey)
		before := s.PID()
		if err := again(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.PID() == before || s.Addr() != addr {
			t.Errorf("%s: pid %d then %d, %s then %s", name, before, s.PID(), addr, s.Addr())
		}
		withClient(t, s, func(ctx context.Context, c *redis.Client) error {
			if n, err := c.DBSize(ctx).Result(); err != nil || n != 0 {
				return fmt.Errorf("%s: %d keys, %w", name, n, err)
			}
			return nil
		})
	}
}

func TestAppendOnlyKeepsItsKeys(t *testing.T) {
	t.Parallel()
	s := start(t, Options{AppendOnly: true})
	withClient(t, s, setKey)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	withClient(t, s, func(ctx context.Context, c *redis.Client) error {
		if v, err := c.Get(ctx, "k").Result(); err != nil || v != "v" {
			return fmt.Errorf("k = %q, %w", v, err)
		}
		return nil
	})
}

// A server that is still loading its file is not ready.
func TestARestartReturnsWhenItsFileIsRead(t *testing.T) {
	t.Parallel()
	const keys = 300_000
	s := start(t, Options{AppendOnly: true})
	withClient(t, s, func(ctx context.Context, c *redis.Client) error {
		for from := 0; from < keys; from += keys / 30 { // one script for all may take longer than the client's timeout
			if err := c.Eval(ctx, `for i = ARGV[1] + 1, ARGV[1] + ARGV[2] do redis.call('SET', 'k' .. i, i) end return 1`, nil, from, keys/30).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	withClient(t, s, func(ctx context.Context, c *redis.Client) error {
		if n, err := c.DBSize(ctx).Result(); err != nil || n != keys {
			t.Errorf("%d keys right after the restart, %v", n, err)
		}
		return nil
	})
}

func TestSettingsKeepKeysAndManyDatabases(t *testing.T) {
	t.Parallel()
	one, two := start(t, Options{}), start(t, Options{})
	if one.Addr() == two.Addr() {
		t.Error("two servers share an address")
	}
	withClient(t, one, func(ctx context.Context, c *redis.Client) error {
		var failed error
		for name, want := range map[string]string{"maxmemory-policy": "noeviction", "databases": "64", "save": "", "appendonly": "no"} {
			got, err := c.ConfigGet(ctx, name).Result()
			if err != nil || got[name] != want {
				failed = errors.Join(failed, fmt.Errorf("%s = %q, want %q, %w", name, got[name], want, err))
			}
		}
		return failed
	})
}

// Another user of the machine can reach the port, list the processes and try to read the directory.
func TestAConnectionNeedsThePassword(t *testing.T) {
	t.Parallel()
	s, other := start(t, Options{}), start(t, Options{})
	for name, password := range map[string]string{"none": "", "of another server": other.Password()} {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: password})
		if err := c.Get(t.Context(), "k").Err(); err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("the password %s is accepted: %v", name, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	info, err := os.Stat(filepath.Join(s.dir.Path, "data", "redis.conf"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file of the password: %v, %v", info, err)
	}
	if ps, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(s.PID())).Output(); err != nil || len(ps) == 0 || strings.Contains(string(ps), s.Password()) {
		t.Errorf("the arguments of the process: %s, %v", ps, err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	path := s.dir.Path
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
	if err := syscall.Kill(s.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", s.PID(), err)
	}
	if err := s.Restart(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("restart after stop: %v", err)
	}
}

func TestFindNamesAWrongDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("REDIS_BINDIR", dir)
	if _, err := Find(); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Find = %v", err)
	}
	t.Setenv("REDIS_BINDIR", "")
	t.Setenv("PATH", dir)
	if _, err := Find(); !errors.Is(err, ErrNotFound) {
		t.Errorf("Find = %v", err)
	}
}
