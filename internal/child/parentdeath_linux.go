package child

import "syscall"

// setParentDeathSignal makes the kernel send sig to the child when the thread that starts it ends. It reports whether the system can.
func setParentDeathSignal(attr *syscall.SysProcAttr, sig syscall.Signal) bool {
	attr.Pdeathsig = sig
	return true
}
