package child

import "syscall"

// setParentDeathSignal lets the kernel send sig to the child when the thread that starts it ends. It reports whether it could.
func setParentDeathSignal(attr *syscall.SysProcAttr, sig syscall.Signal) bool {
	attr.Pdeathsig = sig
	return true
}
