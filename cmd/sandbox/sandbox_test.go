//go:build unix

package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sandbox-test")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "sandbox")
	code := 1
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the sandbox: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// newDir returns a temporary directory for the sandbox, which a server's user may enter.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandbox-place")
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

// sandboxProcess is a running sandbox.
type sandboxProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.Writer
	out    *bufio.Scanner
	stderr bytes.Buffer
}

// sandbox starts the binary with its directories in dir.
func sandbox(t *testing.T, dir string, args ...string) *sandboxProcess {
	t.Helper()
	s := &sandboxProcess{t: t, cmd: exec.Command(binary, args...)}
	s.cmd.Env = append(os.Environ(), "TMPDIR="+dir, databaseVariable+"=not this")
	s.cmd.Stderr = &s.stderr
	in, errIn := s.cmd.StdinPipe()
	out, errOut := s.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		t.Fatal(err)
	}
	s.input = in
	s.out = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// line returns the next line that the command writes.
func (s *sandboxProcess) line() string {
	s.t.Helper()
	if !s.out.Scan() {
		s.t.Fatalf("no more output: %v; %s", s.out.Err(), s.stderr.String())
	}
	return s.out.Text()
}

func (s *sandboxProcess) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// code waits for the end and returns the exit code, -1 for a signal.
func (s *sandboxProcess) code() int {
	s.t.Helper()
	err := s.cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

func leftIn(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "recourse-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// isDead reports whether a process has ended, reaped or not.
func isDead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const printURLs = `echo $RECOURSE_DATABASE_URL; echo $RECOURSE_OWNER_DATABASE_URL; echo $RECOURSE_REDIS_URL; `

// connect connects to both servers and returns redis-server's process id.
func connect(t *testing.T, databaseURL, ownerURL, redisURL string) (redisPID int) {
	t.Helper()
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	var name, role, fsync, limit string
	const ask = `select current_database(), current_user, current_setting('fsync'), current_setting('max_connections')`
	if err := errors.Join(db.QueryRowContext(t.Context(), ask).Scan(&name, &role, &fsync, &limit), db.Close()); err != nil {
		t.Fatal(err)
	}
	owner, err := sql.Open("postgres", ownerURL)
	if err != nil {
		t.Fatal(err)
	}
	var may, owns bool
	const power = `select (select rolsuper or rolcreatedb from pg_roles where rolname = $1), rolsuper from pg_roles where rolname = current_user`
	if err := errors.Join(owner.QueryRowContext(t.Context(), power, role).Scan(&may, &owns), owner.Close()); err != nil || may || !owns {
		t.Errorf("%s has power: %t, the owner: %t, %v", role, may, owns, err)
	}
	if name != "recourse" || fsync != "on" || limit != "300" {
		t.Errorf("database %s, fsync %s, max_connections %s", name, fsync, limit)
	}
	o, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	info, err := c.InfoMap(t.Context(), "server").Result()
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	return number(t, info["Server"]["process_id"])
}

func TestCommandGetsServersThatAnswer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	s := sandbox(t, dir, "sh", "-c", printURLs+`read line; echo "$line"; sleep 1000 & echo $!; read line; exit 42`)
	if _, err := io.WriteString(s.input, "a line\n"); err != nil {
		t.Fatal(err)
	}
	databaseURL, ownerURL, redisURL := s.line(), s.line(), s.line()
	if got := s.line(); got != "a line" {
		t.Errorf("read %q", got)
	}
	left := number(t, s.line())
	connect(t, databaseURL, ownerURL, redisURL)
	if _, err := io.WriteString(s.input, "go on\n"); err != nil {
		t.Fatal(err)
	}
	if code := s.code(); code != 42 {
		t.Errorf("exit code %d; %s", code, s.stderr.String())
	}
	poll.Until(t, "the end of what the command left running", func() bool { return isDead(left) })
	if found := leftIn(t, dir); len(found) > 0 {
		t.Errorf("left behind: %v", found)
	}
}

func TestKilledSandboxLeavesNoProcessAndTheNextCleansUp(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	s := sandbox(t, dir, "sh", "-c", printURLs+`echo $$; sleep 1000 & echo $!; wait`)
	databaseURL, ownerURL, redisURL := s.line(), s.line(), s.line()
	pids := map[string]int{"redis": connect(t, databaseURL, ownerURL, redisURL), "command": number(t, s.line()), "its child": number(t, s.line())}
	files, err := filepath.Glob(filepath.Join(dir, "recourse-pg-*/data/postmaster.pid"))
	if err != nil || len(files) != 1 {
		t.Fatalf("postmaster.pid: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pids["postgres"] = number(t, first)
	s.signal(syscall.SIGKILL)
	if code := s.code(); code != -1 {
		t.Errorf("exit code %d", code)
	}
	for name, pid := range pids {
		poll.Until(t, "the end of "+name, func() bool { return isDead(pid) })
	}
	if len(leftIn(t, dir)) == 0 {
		t.Error("no directory is left to remove: the test proves nothing")
	}
	next := sandbox(t, dir, "-durable=true", "sh", "-c", "exit 42")
	if code := next.code(); code != 42 {
		t.Errorf("exit code %d; %s", code, next.stderr.String())
	}
	if found := leftIn(t, dir); len(found) > 0 {
		t.Errorf("not swept: %v", found)
	}
}

func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	for sig, name := range map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGTERM: "TERM"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sandbox(t, newDir(t), "-durable=false", "sh", "-c", `trap "echo got; exit 7" `+name+`; echo ready; sleep 1000 & wait`)
			if got := s.line(); got != "ready" {
				t.Fatalf("read %q", got)
			}
			s.signal(sig)
			if got := s.line(); got != "got" {
				t.Errorf("read %q", got)
			}
			if code := s.code(); code != 7 {
				t.Errorf("exit code %d; %s", code, s.stderr.String())
			}
		})
	}
}

func TestSignalWhileStartingEndsIt(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	s := sandbox(t, dir, "echo", "must not run")
	poll.Until(t, "the first directory", func() bool { return len(leftIn(t, dir)) > 0 })
	s.signal(syscall.SIGTERM)
	if s.out.Scan() {
		t.Errorf("the command ran: %q", s.out.Text())
	}
	if code := s.code(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d; %s", code, s.stderr.String())
	}
	if found := leftIn(t, dir); len(found) > 0 {
		t.Errorf("left behind: %v", found)
	}
}

func TestCommandKilledBySignalGives128AndItsNumber(t *testing.T) {
	t.Parallel()
	if code := sandbox(t, newDir(t), "-durable=false", "sh", "-c", "kill -KILL $$").code(); code != 137 {
		t.Errorf("exit code %d", code)
	}
}

func TestUsageAndCommandsThatCannotRun(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want int
		say  string
		args []string
	}{
		{64, "usage: sandbox", nil},
		{64, "usage: sandbox", []string{"-unknown", "true"}},
		{0, "usage: sandbox", []string{"-h"}},
		{126, "permission denied", []string{"-durable=false", plain}},
		{127, "not found", []string{"-durable=false", "no-such-program"}},
	} {
		s := sandbox(t, dir, tt.args...)
		if code := s.code(); code != tt.want || !strings.Contains(s.stderr.String(), tt.say) {
			t.Errorf("%v: exit code %d, want %d; %s", tt.args, code, tt.want, s.stderr.String())
		}
	}
}
