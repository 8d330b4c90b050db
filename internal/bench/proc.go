package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of times in /proc/<pid>/stat, the same on every Linux.
const tick = 10 * time.Millisecond

// stat is the content of /proc/<pid>/stat.
type stat struct {
	parent   int
	own      time.Duration // user and system
	children time.Duration // of children that ended and were waited for
}

// parseStat reads one /proc/<pid>/stat. The name in it may contain parentheses and
// spaces; the fields begin after the last parenthesis.
func parseStat(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	const parent, user, childrenSystem = 1, 11, 14
	if end < 0 || len(fields) <= childrenSystem {
		return stat{}, fmt.Errorf("not a process's stat: %q", text)
	}
	var s stat
	var err error
	if s.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return stat{}, fmt.Errorf("parent in a process's stat: %w", err)
	}
	const bits = 38     // 87 years of ticks; the sum of two fits a Duration
	var ticks [4]uint64 // user, system, and both of children
	for i := range ticks {
		if ticks[i], err = strconv.ParseUint(fields[user+i], 10, bits); err != nil {
			return stat{}, fmt.Errorf("time in a process's stat: %w", err)
		}
	}
	s.own, s.children = time.Duration(ticks[0]+ticks[1])*tick, time.Duration(ticks[2]+ticks[3])*tick
	return s, nil
}

// cpuOf returns the CPU time of a process with its children, ended and running.
func cpuOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	found := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		s, err := parseStat(string(text))
		if err != nil {
			return 0, err
		}
		switch {
		case filepath.Base(filepath.Dir(file)) == strconv.Itoa(pid):
			found = true
			sum += s.own + s.children
		case s.parent == pid:
			sum += s.own
		}
	}
	if !found {
		return 0, fmt.Errorf("no process %d", pid)
	}
	return sum, nil
}

// ownCPU returns the CPU time of this process.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// resident returns the resident memory of a process, now and at its peak, in bytes.
func resident(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	if now, err = kilobytes(string(text), "VmRSS"); err != nil {
		return 0, 0, err
	}
	peak, err = kilobytes(string(text), "VmHWM")
	return now, peak, err
}

// anonymous returns the resident memory of a process without the pages of files, in bytes: its heap and
// stacks, whatever the size of its program file.
func anonymous(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return kilobytes(string(text), "RssAnon")
}

// kilobytes reads one line of /proc/<pid>/status, in bytes.
func kilobytes(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if !ok {
			return 0, fmt.Errorf("%s is not in kB: %q", name, line)
		}
		n, err := strconv.ParseInt(number, 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("no %s in a process's status", name)
}
