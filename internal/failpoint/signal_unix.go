//go:build unix

package failpoint

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// kill ends the process as the kernel would: no deferred call, no flush, no farewell.
func kill() {
	raise(syscall.SIGKILL)
	select {} // the signal is on its way; nothing may happen meanwhile
}

// freeze returns when the process goes on. The signal stops the process soon, but not
// before kill returns: without the wait, what is behind the point might still be done.
func freeze() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	raise(syscall.SIGSTOP)
	<-continued
}

func raise(sig syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		panic(fmt.Sprintf("failpoint: %v to the own process: %v", sig, err))
	}
}
