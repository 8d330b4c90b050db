//go:build unix

package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Spec says what to run. The zero value of a field means none: no environment, no input, output discarded.
type Spec struct {
	Path string
	Args []string // without the program's name
	Dir  string   // must be readable by As
	Env  []string
	As   *Identity // nil: the current user

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// ParentDeathSignal is sent to the child when this process dies.
	ParentDeathSignal syscall.Signal
	// ShareGroup keeps the child in this process's group; else it leads a new one.
	ShareGroup bool
	// KillGroupWithParent kills the child's group with SIGKILL when this process dies, so that the child's children end, too.
	KillGroupWithParent bool
}

// pipeGrace is how long output is read after the child ended while its children still have it open.
const pipeGrace = 2 * time.Second

// Process is a started child. It is safe for concurrent use.
type Process struct {
	cmd      *exec.Cmd
	ownGroup bool
	done     chan struct{}
}

// Start runs spec. The child is running when Start returns. The caller must stop it, but need not wait for it.
func Start(spec Spec) (*Process, error) {
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir, cmd.Env = spec.Dir, spec.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.Stdin, spec.Stdout, spec.Stderr
	cmd.WaitDelay = pipeGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !spec.ShareGroup, Credential: spec.As.credential()}
	kernelSignals := setParentDeathSignal(cmd.SysProcAttr, spec.ParentDeathSignal)
	p := &Process{cmd: cmd, ownGroup: !spec.ShareGroup, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started, func() ([]*watchdog, error) {
		var targets []watchdog
		if !kernelSignals && spec.ParentDeathSignal != 0 {
			targets = append(targets, watchdog{target: cmd.Process.Pid, signal: spec.ParentDeathSignal})
		}
		if spec.KillGroupWithParent && !spec.ShareGroup {
			targets = append(targets, watchdog{target: -cmd.Process.Pid, signal: syscall.SIGKILL})
		}
		return startWatchdogs(targets)
	})
	return p, <-started
}

// run starts the child and waits for its end on one thread: the parent death signal is sent at the end of the thread
// that started the child, not of the process.
func (p *Process) run(started chan<- error, guard func() ([]*watchdog, error)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		close(p.done)
		started <- err
		return
	}
	watchdogs, err := guard()
	if err != nil {
		err = errors.Join(err, p.cmd.Process.Kill())
	}
	started <- err
	// Wait's error repeats the state that Code returns, or says that another process still had the output open.
	_ = p.cmd.Wait()
	for _, w := range watchdogs {
		w.release()
	}
	close(p.done)
}

// PID returns the child's process id, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the child has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Code returns the exit code of an ended child as shells do: 128 plus the signal's number if a signal ended it.
func (p *Process) Code() int {
	<-p.done
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends sig to the child only. An ended child is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// SignalGroup sends sig to the child's group, or only to the child if it shares this process's group. An ended group is no error.
func (p *Process) SignalGroup(sig syscall.Signal) error {
	if !p.ownGroup {
		return p.Signal(sig)
	}
	if err := syscall.Kill(-p.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Stop sends each signal in turn and waits up to grace for the end of the child after each. Then it sends SIGKILL. It
// returns when the child has ended.
func (p *Process) Stop(grace time.Duration, signals ...syscall.Signal) error {
	for _, sig := range signals {
		if err := p.Signal(sig); err != nil {
			return err
		}
		timer := time.NewTimer(grace)
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}
