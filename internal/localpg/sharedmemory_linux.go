package localpg

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// childrenOf returns the children of a process; none if the kernel was built without that list.
func childrenOf(pid int) []int {
	id := strconv.Itoa(pid)
	text, err := os.ReadFile(filepath.Join("/proc", id, "task", id, "children"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// segmentLine is the line of postmaster.pid with the key and id of the server's shared memory.
const segmentLine = 6

// removeSharedMemory removes the small shared memory segment that a server killed with SIGKILL leaves outside its directory. A
// server that shut down has removed the segment, and its postmaster.pid.
func removeSharedMemory(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) <= segmentLine {
		return nil
	}
	fields := strings.Fields(lines[segmentLine])
	if len(fields) != 2 {
		return nil
	}
	key, errKey := strconv.ParseInt(fields[0], 10, 64)
	id, errID := strconv.Atoi(fields[1])
	if errKey != nil || errID != nil {
		return nil
	}
	var segment unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err != nil {
		return ignoreGone(err)
	}
	if segment.Perm.Key != int32(key) || segment.Nattch > 0 {
		return nil // the id was reused, or is still in use
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return ignoreGone(err)
}

// ignoreGone drops the errors for a segment that was removed, or replaced by another process's.
func ignoreGone(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EIDRM) || errors.Is(err, syscall.EACCES) {
		return nil
	}
	return err
}
