package child

import "syscall"

// minMemory is what a server with small tests may need; containers often have only 64 MB.
const minMemory = 1 << 30

// memoryRoot returns a file system in memory with room for a server, or "".
func memoryRoot() string {
	const shm = "/dev/shm"
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err != nil || st.Bavail*uint64(st.Bsize) < minMemory {
		return ""
	}
	return shm
}
