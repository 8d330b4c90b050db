package child

import "syscall"

// tie lets the kernel send sig to the child when the thread that starts it ends. It reports whether it could.
func tie(attr *syscall.SysProcAttr, sig syscall.Signal) bool {
	attr.Pdeathsig = sig
	return true
}
