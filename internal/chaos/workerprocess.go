package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/child"
)

// errWorkerEnded means that the worker ended before its reply; it may have executed the command.
var errWorkerEnded = errors.New("the worker ended before it replied")

// workerProcess holds one worker process.
type workerProcess struct {
	process *child.Process
	in      *os.File
	ready   chan struct{} // closed when the worker is open
	jobs    string        // address of /ojs, once it is
	ended   chan struct{} // closed after its last reply

	mu       sync.Mutex
	last     int
	waiting  map[int]chan worker.Reply
	received []receivedAt
	endedAt  time.Time
}

// launch starts this program as a worker.
func launch(s worker.Settings, log io.Writer) (*workerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	env, err := s.Environment()
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	process, err := child.Start(child.Spec{
		Path: self, Env: []string{env}, Dir: os.TempDir(), Stdin: theirIn, Stdout: theirOut, Stderr: log, ParentDeathSignal: syscall.SIGKILL,
	})
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	h := &workerProcess{process: process, in: in, ready: make(chan struct{}), ended: make(chan struct{}), waiting: map[int]chan worker.Reply{}}
	go h.listen(out)
	return h, nil
}

// listen passes replies to their waiting callers, until the worker ends.
func (h *workerProcess) listen(out *os.File) {
	defer close(h.ended)
	defer out.Close()
	defer h.noteEnd()
	for lines := json.NewDecoder(out); ; {
		var r worker.Reply
		if lines.Decode(&r) != nil {
			return // the end, or half a line of a worker that was killed
		}
		if r.Received != nil {
			h.receive(*r.Received)
			continue
		}
		if r.ID == 0 {
			h.jobs = r.Address
			close(h.ready)
			continue
		}
		h.mu.Lock()
		reply := h.waiting[r.ID]
		delete(h.waiting, r.ID)
		h.mu.Unlock()
		if reply != nil {
			reply <- r
		}
	}
}

// ask sends the worker a command and waits for its reply.
func (h *workerProcess) ask(ctx context.Context, c worker.Command) (worker.Reply, error) {
	reply := make(chan worker.Reply, 1)
	if err := h.send(c, reply); err != nil {
		return worker.Reply{}, err
	}
	select {
	case r := <-reply:
		return r, nil
	case <-h.ended:
		select {
		case r := <-reply:
			return r, nil
		default:
			return worker.Reply{}, errWorkerEnded
		}
	case <-ctx.Done():
		return worker.Reply{}, ctx.Err()
	}
}

func (h *workerProcess) send(c worker.Command, reply chan worker.Reply) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	c.ID = h.last
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	h.waiting[c.ID] = reply
	if _, err := h.in.Write(append(line, '\n')); err != nil {
		delete(h.waiting, c.ID)
		return errWorkerEnded
	}
	return nil
}

// stop asks for a graceful end.
func (h *workerProcess) stop() error { return h.process.Signal(syscall.SIGTERM) }

// stopped reports whether the worker is stopped by SIGSTOP.
func (h *workerProcess) stopped() (bool, error) { return isStopped(h.process) }

// isStopped reports whether a child is stopped by SIGSTOP.
func isStopped(p *child.Process) (bool, error) {
	var info unix.Siginfo // WNOWAIT: the wait for the end of the process must still see every change
	err := unix.Waitid(unix.P_PID, p.PID(), &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
	if errors.Is(err, unix.ECHILD) {
		return false, nil
	}
	return err == nil && info.Signo != 0, err
}

// kill ends the worker at once, also a frozen one, and returns when it has ended. A worker may be
// killed again: two faults can end at once.
func (h *workerProcess) kill() error {
	err := h.process.Stop(0)
	<-h.ended
	if closed := h.in.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}
