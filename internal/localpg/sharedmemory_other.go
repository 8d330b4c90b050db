//go:build unix && !linux

package localpg

// childrenOf returns none: the sessions of a killed postmaster end by themselves.
func childrenOf(int) []int { return nil }

// removeSharedMemory does nothing: a start on the same directory removes the segment of a crashed server, and the
// watchdog shuts an abandoned server down in order.
func removeSharedMemory(string) error { return nil }
