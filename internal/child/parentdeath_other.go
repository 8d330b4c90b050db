//go:build unix && !linux

package child

import "syscall"

// setParentDeathSignal returns false: this system has no parent death signal, so a watchdog is needed.
func setParentDeathSignal(*syscall.SysProcAttr, syscall.Signal) bool { return false }
