//go:build unix

package failpoint

import (
	"fmt"
	"os"
	"syscall"
)

// die ends the process as the kernel would: no deferred call, no flush, no farewell.
func die() {
	raise(syscall.SIGKILL)
	select {} // the signal is on its way; nothing may happen meanwhile
}

func freeze() { raise(syscall.SIGSTOP) }

func raise(sig syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		panic(fmt.Sprintf("failpoint: %v to the own process: %v", sig, err))
	}
}
