//go:build unix

package failpoint

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// kill ends the process as the kernel would: no deferred call, no flush.
func kill() {
	raise(syscall.SIGKILL)
	select {} // the signal is on its way; nothing else may run meanwhile
}

// freeze returns when the process continues. The signal stops the process soon, but not before
// raise returns: without the wait, code after the point might still run.
func freeze() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	raise(syscall.SIGSTOP)
	<-continued
}

func raise(sig syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		panic(fmt.Sprintf("failpoint: send %v to this process: %v", sig, err))
	}
}
