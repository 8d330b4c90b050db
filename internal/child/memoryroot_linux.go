package child

import "syscall"

// minMemory is what a server with small tests may fill; containers often have 64 MB only.
const minMemory = 1 << 30

// memoryRoot is a file system in memory with room for a server, or empty.
func memoryRoot() string {
	const shm = "/dev/shm"
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err != nil || st.Bavail*uint64(st.Bsize) < minMemory {
		return ""
	}
	return shm
}
