//go:build unix && !linux

package child

// memoryRoot returns "": this system has no standard file system in memory.
func memoryRoot() string { return "" }
