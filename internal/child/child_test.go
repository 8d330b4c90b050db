//go:build unix

package child

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper starts a child that does nothing until it gets a signal.
func sleeper(t *testing.T, spec Spec) *Process {
	t.Helper()
	spec.Path, spec.Args = "/bin/sh", []string{"-c", "sleep 1000 & wait"}
	p, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.SignalGroup(syscall.SIGKILL), p.Stop(0)); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestCodeIsTheExitCodeOfShells(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 42": 42, "kill -TERM $$": 143, "kill -KILL $$": 137} {
		p, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Code(); got != want {
			t.Errorf("%s: code %d, want %d", script, got, want)
		}
		if err := errors.Join(p.Signal(syscall.SIGTERM), p.Stop(time.Minute, syscall.SIGTERM)); err != nil {
			t.Errorf("signals to an ended child: %v", err)
		}
	}
	if _, err := Start(Spec{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

func TestStopEscalatesSignals(t *testing.T) {
	t.Parallel()
	ready, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Spec{Path: "/bin/sh", Stdout: write, Args: []string{
		"-c", `trap "" TERM QUIT; echo ready; exec sleep 1000`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Stop(time.Millisecond, syscall.SIGTERM, syscall.SIGQUIT), ready.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	if code := p.Code(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("code %d: it ignores all but SIGKILL", code)
	}
}

func TestWatchdogSignalsWhenWeDieAndNotWhenReleased(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]bool{"process": false, "group": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, spared := sleeper(t, Spec{}), sleeper(t, Spec{})
			target := p.PID()
			if group {
				target = -target
			}
			watchdogs, err := startWatchdogs([]watchdog{{target: target, signal: syscall.SIGKILL}, {target: spared.PID(), signal: syscall.SIGKILL}})
			if err != nil {
				t.Fatal(err)
			}
			watchdogs[1].release()
			if err := watchdogs[0].pipe.Close(); err != nil { // as the kernel does when this process dies
				t.Fatal(err)
			}
			<-p.Done()
			if err := watchdogs[0].cmd.Wait(); err != nil {
				t.Errorf("the watchdog: %v", err)
			}
			select {
			case <-spared.Done():
				t.Error("a released watchdog sent its signal")
			default:
			}
		})
	}
}

func TestTempDirRemovesOnlyDirectoriesOfDeadProcesses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ended := exec.Command("/bin/sh", "-c", "exit 0")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead := strconv.Itoa(ended.Process.Pid)
	for _, name := range []string{
		"recourse-pg-" + dead + "-1", "recourse-pg-" + dead + "-held", "recourse-redis-" + dead + "-1",
		"recourse-pg-1-1", "recourse-pg-x-1", "recourse-pg-", "other",
	} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := lock(filepath.Join(root, "recourse-pg-"+dead+"-held", lockName))
	if err != nil {
		t.Fatal(err)
	}
	var cleaned []string
	d, err := TempDir("pg", []string{filepath.Join(root, "missing"), root}, nil, func(path string) error {
		cleaned = append(cleaned, filepath.Base(path))
		return nil
	})
	if err := errors.Join(err, held.Close()); err != nil {
		// A missing root is skipped without an error.
		t.Fatal(err)
	}
	if len(cleaned) != 1 || cleaned[0] != "recourse-pg-"+dead+"-1" {
		t.Errorf("swept %q", cleaned)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 7 {
		t.Errorf("%d entries are left: %v, %v", len(entries), entries, err)
	}
	if !strings.HasPrefix(filepath.Base(d.Path), "recourse-pg-"+strconv.Itoa(os.Getpid())+"-") || !d.Temporary() {
		t.Errorf("made %s", d.Path)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestCanReachNamesTheClosedDirectory(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(root, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := &Identity{Name: "stranger", UID: 4242, GID: 4242}
	err = stranger.CanReach(filepath.Join(closed, "deep"))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(closed, "deep")) || !strings.Contains(err.Error(), "stranger") {
		t.Errorf("a closed directory: %v", err)
	}
	if err := stranger.CanReach("/"); err != nil {
		t.Errorf("the root: %v", err)
	}
	var ourselves *Identity
	if err := ourselves.CanReach(filepath.Join(closed, "deep")); err != nil {
		t.Errorf("ourselves: %v", err)
	}
	owner := &Identity{Name: "owner", UID: uint32(os.Getuid()), GID: 4242}
	if err := owner.CanReach(filepath.Join(closed, "deep")); err != nil {
		t.Errorf("the owner: %v", err)
	}
}

// failingServer is a server that prints words and ends.
func failingServer(words string, ports *[]int) Server {
	return Server{
		Name: "failing", InUse: func(output string) bool { return strings.Contains(output, "in use") },
		Ready: func(context.Context, int, int) error { return errors.New("not ready") },
		Spec: func(port int) Spec {
			*ports = append(*ports, port)
			return Spec{Path: "/bin/sh", Args: []string{"-c", "echo " + words + "; exit 3"}}
		},
	}
}

func TestServeTriesOtherPortsOnlyWhenOneIsInUse(t *testing.T) {
	t.Parallel()
	for words, tries := range map[string]int{"port in use": portTries, "bad setting": 1} {
		var ports []int
		_, _, err := failingServer(words, &ports).Serve(t.Context(), 0)
		if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "code 3") {
			t.Errorf("%s: %v", words, err)
		}
		if len(ports) != tries {
			t.Errorf("%s: ports %v, want %d", words, ports, tries)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var pid int
	s := Server{
		Name: "deaf", InUse: func(string) bool { return false },
		Spec: func(int) Spec {
			return Spec{Path: "/bin/sh", Args: []string{"-c", "sleep 1000 & wait"}, ParentDeathSignal: syscall.SIGTERM}
		},
		Ready: func(_ context.Context, _, p int) error {
			pid = p
			cancel()
			return errors.New("not ready")
		},
	}
	if _, _, err := s.Serve(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
	if processExists(pid) {
		t.Errorf("process %d is still running", pid)
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

func TestFreePortIsFreeAndNotTheStandardOne(t *testing.T) {
	t.Parallel()
	var taken error // by another process, after it was free
	for range 5 {
		port, err := freePort(5432)
		if err != nil || port == 5432 {
			t.Fatalf("port %d, %v", port, err)
		}
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			taken = errors.Join(taken, err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error(taken)
}

func TestTailKeepsTheEndAndOutlivesItsLog(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	out := tail{next: write}
	for range 3 {
		if n, err := out.Write([]byte(strings.Repeat("a", tailSize))); n != tailSize || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if _, err := out.Write([]byte("\nlast\nwords\n")); err != nil {
		t.Fatal(err)
	}
	if got := out.summary(); len(out.String()) != tailSize || !strings.HasSuffix(got, " | last | words") {
		t.Errorf("%d bytes, %q", len(out.String()), got[len(got)-20:])
	}
}
