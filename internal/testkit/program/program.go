// Package program builds the commands of this repository and starts them as servers, for tests that see
// nothing of them but their answers.
//
// A server that Launch started ends with Close, or with the tests, should they die.
package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// launchLimit bounds the start of a server.
const launchLimit = 5 * time.Minute

// Programs builds commands into a folder of its own, and stops what was started of them. It is safe for
// concurrent use.
type Programs struct {
	folder string
	build  func() error

	mu  sync.Mutex
	all []*Server
}

// New returns Programs with an empty folder. The commands are built with the first Launch.
func New() (*Programs, error) {
	folder, err := os.MkdirTemp("", "recourse-programs")
	if err != nil {
		return nil, err
	}
	return &Programs{folder: folder, build: sync.OnceValue(func() error {
		const commands = "github.com/recourse-dev/recourse/cmd/"
		if out, err := exec.Command("go", "build", "-o", folder+"/", commands+"recourse", commands+"sandbox").CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
		return nil
	})}, nil
}

// Path returns the path of a command: recourse or sandbox.
func (ps *Programs) Path(name string) string { return filepath.Join(ps.folder, name) }

// Close stops the servers and removes the folder.
func (ps *Programs) Close() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var err error
	for _, p := range ps.all {
		err = errors.Join(err, p.stop())
	}
	return errors.Join(err, os.RemoveAll(ps.folder))
}

// Server is a server that Launch started.
type Server struct {
	URL      string   // without a slash at the end
	Tokens   []string // of keys that were made before it started
	cmd      *exec.Cmd
	watchdog *exec.Cmd
	lifeline io.WriteCloser // the watchdog's input
	ended    chan error
}

// Launch starts a program with arguments, and returns once it has written its address. With --json its
// first output is an object with url; objects with token, which recourse keys create writes, may precede
// it. The name is that of its log.
func (ps *Programs) Launch(name, program string, arguments ...string) (p *Server, err error) {
	if err := ps.build(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(ps.folder, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }() // the process has a copy of its own
	p = &Server{cmd: exec.Command(program, arguments...), ended: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Stderr = ps.folder, log
	for _, variable := range os.Environ() { // which may name servers of other tests
		if !strings.HasPrefix(variable, "RECOURSE_") {
			p.cmd.Env = append(p.cmd.Env, variable)
		}
	}
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = write
	err = p.cmd.Start()
	if err := errors.Join(err, write.Close()); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	if err := p.watch(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	if err := p.readAddress(stdout); err != nil {
		ended := p.stop()
		text, read := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("%s: %w\n%s", strings.Join(p.cmd.Args, " "), err, text), ended, read)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.all = append(ps.all, p)
	return p, nil
}

// readAddress reads the address that a server writes once it is ready, and the keys before it. What is
// written later is discarded.
func (p *Server) readAddress(stdout *os.File) error {
	if err := stdout.SetReadDeadline(time.Now().Add(launchLimit)); err != nil {
		return err
	}
	for output := json.NewDecoder(stdout); p.URL == ""; {
		var written struct {
			URL   string `json:"url"`
			Token string `json:"token"`
		}
		if err := output.Decode(&written); err != nil {
			return fmt.Errorf("its address: %w", err)
		}
		switch {
		case written.Token != "":
			p.Tokens = append(p.Tokens, written.Token)
		case written.URL == "":
			return errors.New("its output is neither its address nor a key")
		}
		p.URL = strings.TrimRight(written.URL, "/")
	}
	if err := stdout.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		_ = stdout.Close()
	}()
	return nil
}

// watch starts a process that ends the server should the tests die, as they do at the time limit of go test.
func (p *Server) watch() (err error) {
	p.watchdog = exec.Command("/bin/sh", "-c", "cat >/dev/null; kill "+strconv.Itoa(p.cmd.Process.Pid))
	if p.lifeline, err = p.watchdog.StdinPipe(); err != nil {
		return err
	}
	return p.watchdog.Start()
}

// stop ends the server: first politely, so that it stops the servers that it has started.
func (p *Server) stop() (err error) {
	if err = p.cmd.Process.Signal(os.Interrupt); errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case ended := <-p.ended:
		err = errors.Join(err, unlessExited(ended))
	case <-time.After(time.Minute):
		err = errors.Join(err, errors.New("the server under test did not end within a minute of its signal, and was killed"), p.cmd.Process.Kill(), unlessExited(<-p.ended))
	}
	if p.watchdog.Process != nil {
		_ = p.watchdog.Process.Kill() // it may have ended
		err = errors.Join(err, unlessExited(p.watchdog.Wait()))
	}
	return err
}

// unlessExited returns the error of a wait for a process, but nil if the process has exited, with any code.
func unlessExited(err error) error {
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return nil
	}
	return err
}
