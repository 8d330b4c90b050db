//go:build unix

package child

import "os"

// TempRoots are the places for temporary directories, best first: in memory when nothing need be durable and there is
// memory for it, then the system's temporary directory, then those that every Unix has.
func TempRoots(durable bool) []string {
	roots := []string{os.TempDir(), "/tmp", "/var/tmp"}
	if memory := memoryRoot(); memory != "" && !durable {
		roots = append([]string{memory}, roots...)
	}
	return roots
}
