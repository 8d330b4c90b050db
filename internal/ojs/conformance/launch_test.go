package conformance_test

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

// folder has the programs and what the servers write.
var folder string

func binary(name string) string { return filepath.Join(folder, name) }

// build builds the programs, once.
var build = sync.OnceValue(func() error {
	const commands = "github.com/recourse-dev/recourse/cmd/"
	if out, err := exec.Command("go", "build", "-o", folder+"/", commands+"recourse", commands+"sandbox").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

// launched are the servers that stopAll stops.
var launched struct {
	sync.Mutex
	all []*process
}

// process is a server that the tests have started.
type process struct {
	url      string
	tokens   []string // of keys that were made before it started
	cmd      *exec.Cmd
	watchdog *exec.Cmd
	lifeline io.WriteCloser // the watchdog's input
	ended    chan error
}

// launch builds the programs, starts a server, and returns once the server has written its address.
func launch(name, program string, arguments ...string) (*process, error) {
	if err := build(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(program, arguments...), ended: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Stderr = folder, log
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
		p.stop()
		return nil, err
	}
	if err := p.readAddress(stdout); err != nil {
		p.stop()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(p.cmd.Args, " "), err, text)
	}
	launched.Lock()
	defer launched.Unlock()
	launched.all = append(launched.all, p)
	return p, nil
}

func stopAll() {
	launched.Lock()
	defer launched.Unlock()
	for _, p := range launched.all {
		p.stop()
	}
}

// readAddress reads the address that a server writes once it is ready, and the keys before it. What is
// written later is discarded.
func (p *process) readAddress(stdout *os.File) error {
	if err := stdout.SetReadDeadline(time.Now().Add(launchLimit)); err != nil {
		return err
	}
	for output := json.NewDecoder(stdout); p.url == ""; {
		var written struct {
			URL   string `json:"url"`
			Token string `json:"token"`
		}
		if err := output.Decode(&written); err != nil {
			return fmt.Errorf("its address: %w", err)
		}
		switch {
		case written.Token != "":
			p.tokens = append(p.tokens, written.Token)
		case written.URL == "":
			return errors.New("its output is neither its address nor a key")
		}
		p.url = strings.TrimRight(written.URL, "/")
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
func (p *process) watch() (err error) {
	p.watchdog = exec.Command("/bin/sh", "-c", "cat >/dev/null; kill "+strconv.Itoa(p.cmd.Process.Pid))
	if p.lifeline, err = p.watchdog.StdinPipe(); err != nil {
		return err
	}
	return p.watchdog.Start()
}

// stop ends the server: first politely, so that it stops the servers that it has started.
func (p *process) stop() {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintln(os.Stderr, "the server under test:", err)
	}
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		fmt.Fprintln(os.Stderr, "the server under test did not end within a minute of its signal, and was killed")
	}
	if p.watchdog.Process != nil {
		_ = p.watchdog.Process.Kill()
		_ = p.watchdog.Wait()
	}
}
