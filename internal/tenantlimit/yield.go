package tenantlimit

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
)

// pipe is a pipe whose reader waits in the runtime's network poller.
type pipe struct {
	in, out *os.File
	raw     syscall.RawConn // of in
}

// newPipe returns a nil *pipe if no file descriptors are left.
func newPipe() any {
	in, out, err := os.Pipe()
	if err != nil {
		return (*pipe)(nil)
	}
	raw, err := in.SyscallConn()
	if err != nil {
		return (*pipe)(nil)
	}
	return &pipe{in, out, raw}
}

// pipes are those that nobody waits on. The garbage collector closes dropped ones.
var pipes = sync.Pool{New: newPipe}

// Yield returns after what waits for a processor had its turn: goroutines that can run, and those
// whose data has arrived from the network. runtime.Gosched serves only the first: the scheduler
// looks for arrived data when no goroutine can run, or after 10 ms, and the caller of Gosched can.
// So Yield waits for a byte of its own, which the scheduler finds together with other data.
func Yield() {
	p, _ := pipes.Get().(*pipe)
	if p == nil || p.wait() != nil {
		runtime.Gosched()
		return
	}
	pipes.Put(p)
}

// wait returns when the poller has found a byte that it writes.
func (p *pipe) wait() error {
	var b [1]byte
	var written error
	found := false
	waited := p.raw.Read(func(uintptr) (done bool) { // called again when the poller has found data
		if found {
			return true
		}
		found = true
		_, written = p.out.Write(b[:])
		return written != nil
	})
	if err := errors.Join(waited, written); err != nil {
		return err
	}
	_, err := p.in.Read(b[:])
	return err
}
