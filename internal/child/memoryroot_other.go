//go:build unix && !linux

package child

// memoryRoot is empty: there is no agreed file system in memory here.
func memoryRoot() string { return "" }
