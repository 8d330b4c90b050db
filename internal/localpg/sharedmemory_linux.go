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

// childrenOf lists a process's children; none where the kernel was built without that list.
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

// removeSharedMemory removes what a server killed with SIGKILL leaves outside its directory: a small shared memory segment. A
// server that shut down has removed it, and its postmaster.pid.
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
		return nil // another's by now, or still in use
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return ignoreGone(err)
}

// ignoreGone drops the errors for a segment that is gone, or was replaced by a stranger's.
func ignoreGone(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EIDRM) || errors.Is(err, syscall.EACCES) {
		return nil
	}
	return err
}
