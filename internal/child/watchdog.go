//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// watchdog is a shell that waits for the end of a pipe that only this process has open. Then it signals its target: a
// process, or a group if negative.
type watchdog struct {
	target int
	signal syscall.Signal
	cmd    *exec.Cmd
	pipe   *os.File
}

// startWatchdogs starts a watchdog for each target, all or none.
func startWatchdogs(targets []watchdog) ([]*watchdog, error) {
	var started []*watchdog
	for i := range targets {
		if err := targets[i].start(); err != nil {
			for _, w := range started {
				w.release()
			}
			return nil, fmt.Errorf("watching process %d: %w", targets[i].target, err)
		}
		started = append(started, &targets[i])
	}
	return started, nil
}

func (w *watchdog) start() error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	script := fmt.Sprintf("while read -r _; do :; done; kill -%d %d", int(w.signal), w.target)
	w.cmd = exec.Command("/bin/sh", "-c", script)
	w.cmd.Dir, w.cmd.Stdin = "/", read
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.pipe = write
	if err := w.cmd.Start(); err != nil {
		return errors.Join(err, read.Close(), write.Close())
	}
	return read.Close()
}

// release ends the watchdog without its signal. The watchdog must not see the end of the pipe: the target's process id
// may have been reused.
func (w *watchdog) release() {
	if w.cmd.Process.Kill() == nil {
		_ = w.cmd.Wait() // its error says only that it was killed
	}
	_ = w.pipe.Close() // nothing was ever written to it
}
