//go:build unix

package localpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/child"
)

// start runs a server and stops it after the test.
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

// query runs a statement on a new connection and returns its only value.
func query(t *testing.T, s *Server, statement string) string {
	t.Helper()
	db, err := sql.Open("postgres", s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var value string
	if err := db.QueryRowContext(t.Context(), statement).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

// reachableDir returns a temporary directory that the server's user may enter, also if root runs the test.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestMain fails if any test's server left a directory behind.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, root := range child.TempRoots(false) {
		left, err := filepath.Glob(filepath.Join(root, fmt.Sprintf("recourse-pg-%d-*", os.Getpid())))
		if err != nil || len(left) > 0 {
			fmt.Fprintln(os.Stderr, "left behind:", left, err)
			code = 1
		}
	}
	os.Exit(code)
}

func TestServerSurvivesRestartsAndCrashes(t *testing.T) {
	t.Parallel()
	s := start(t, Options{MaxConnections: 37, Durable: true})
	if got := query(t, s, "show max_connections"); got != "37" {
		t.Errorf("max_connections = %s", got)
	}
	url := s.URL("postgres")
	query(t, s, "create table kept as select 'one' as word; select word from kept")
	for name, again := range map[string]func() error{
		"fast":      func() error { return s.Restart(t.Context(), Fast) },
		"immediate": func() error { return s.Restart(t.Context(), Immediate) },
		"kill":      func() error { return errors.Join(s.Kill(), s.Kill(), s.Restart(t.Context(), Fast)) },
	} {
		before := s.PID()
		if err := again(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.PID() == before || s.URL("postgres") != url {
			t.Errorf("%s: pid %d then %d, %s then %s", name, before, s.PID(), url, s.URL("postgres"))
		}
		if got := query(t, s, "select word from kept"); got != "one" {
			t.Errorf("%s: kept = %q", name, got)
		}
	}
	if os.Geteuid() == 0 {
		info, err := os.Stat(s.data)
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
			t.Error("runs as root")
		}
	}
}

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	one, two := start(t, Options{}), start(t, Options{})
	if one.URL("x") == two.URL("x") || one.dir.Path == two.dir.Path {
		t.Error("two servers share a port or a directory")
	}
	for _, s := range []*Server{one, two} {
		if got := query(t, s, "show fsync"); got != "off" {
			t.Errorf("fsync = %s", got)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
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
		if err := s.Restart(t.Context(), Fast); !errors.Is(err, ErrStopped) {
			t.Errorf("restart after stop: %v", err)
		}
		if err := s.Kill(); !errors.Is(err, ErrStopped) {
			t.Errorf("kill after stop: %v", err)
		}
	}
}

func TestKeptDirectoryServesTheNextStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), "deep", "pg")
	var log strings.Builder
	first := start(t, Options{Dir: dir, Durable: true, Log: &log})
	if got := query(t, first, "show fsync"); got != "on" {
		t.Errorf("fsync = %s", got)
	}
	query(t, first, "create table kept as select 'one' as word; select word from kept")
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil {
		t.Error("two servers on one directory")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "ready to accept connections") {
		t.Errorf("no log: %q", log.String())
	}
	if got := query(t, start(t, Options{Dir: dir}), "select word from kept"); got != "one" {
		t.Errorf("kept = %q", got)
	}
}

// Another user of the machine can reach the port, list the processes and try to read the directory.
func TestAConnectionNeedsThePassword(t *testing.T) {
	t.Parallel()
	s, other := start(t, Options{}), start(t, Options{})
	own, err := url.Parse(s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for name, user := range map[string]*url.Userinfo{
		"none": url.User(superuser), "empty": url.UserPassword(superuser, ""), "the user's name": url.UserPassword(superuser, superuser),
		"of another server": url.UserPassword(superuser, other.password),
	} {
		as := *own
		as.User = user
		db, err := sql.Open("postgres", as.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.PingContext(t.Context()); err == nil {
			t.Errorf("the password %s is accepted", name)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	info, err := os.Stat(s.passwordFile())
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file of the password: %v, %v", info, err)
	}
	if ps, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(s.PID())).Output(); err != nil || len(ps) == 0 || strings.Contains(string(ps), s.password) {
		t.Errorf("the arguments of the process: %s, %v", ps, err)
	}
}

// The role survives restarts on a persistent directory, and has no way to more rights.
func TestTheAppRoleConnectsAndOwnsNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), "pg")
	first := start(t, Options{Dir: dir})
	if strings.Contains(first.AppURL("postgres"), first.password) {
		t.Error("it has the superuser's password")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", start(t, Options{Dir: dir}).AppURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var name string
	var more bool
	const ask = `select rolname, rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls or exists (select from pg_auth_members m where m.member = r.oid) from pg_roles r where rolname = current_user`
	if err := db.QueryRowContext(t.Context(), ask).Scan(&name, &more); err != nil || name != AppRole || more {
		t.Errorf("%s, more %t: %v", name, more, err)
	}
}

func TestAKeptClusterWithoutItsPasswordSaysSo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), "pg")
	s := start(t, Options{Dir: dir})
	if err := errors.Join(s.Stop(), os.Remove(s.passwordFile())); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "has no password") {
		t.Errorf("%v", err)
	}
}

func TestStartThatCannotSucceedSaysWhy(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ended, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	if _, err := Start(t.Context(), Options{MaxConnections: -1}); err == nil || !strings.Contains(err.Error(), "max_connections") {
		t.Errorf("a wrong setting: %v", err)
	}
}

// asNobody marks the re-executed test binary as the child.
const asNobody = "LOCALPG_TEST_AS_NOBODY"

func TestOrdinaryUserRunsItAsThemselves(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || os.Getenv(asNobody) != "" {
		s := start(t, Options{})
		if s.as != nil {
			t.Errorf("runs as %v", s.as)
		}
		query(t, s, "select 'one'")
		return
	}
	binary := filepath.Join(reachableDir(t), "localpg.test")
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, text, 0o755); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = "/", []string{asNobody + "=1", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
