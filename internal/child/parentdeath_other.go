//go:build unix && !linux

package child

import "syscall"

// tie reports that this system knows no parent death signal: a watchdog does its work.
func tie(*syscall.SysProcAttr, syscall.Signal) bool { return false }
