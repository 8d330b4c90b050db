package conformance_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// server is the server under test.
type server struct {
	base  string // of its paths, without a slash at the end
	reset string // base of the paths of its test mode
	key   string // empty: it requires none
}

var tested server

// serveArguments start a server that has everything of its own and takes the requests of its test mode. With
// --json its first output is an object with its address.
var serveArguments = []string{"serve", "--private", "--embedded", "--test-mode", "--listen", "127.0.0.1:0", "--json"}

// launchLimit bounds the build of the server and its start.
const launchLimit = 5 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	tested = server{strings.TrimRight(os.Getenv("OJS_URL"), "/"), strings.TrimRight(os.Getenv("OJS_RESET_URL"), "/"), os.Getenv("OJS_KEY")}
	if tested.base == "" {
		dir, err := os.MkdirTemp("", "ojs-conformance")
		if err != nil {
			return report(err)
		}
		defer os.RemoveAll(dir)
		p, err := launch(dir)
		if err != nil {
			return report(err)
		}
		defer p.stop()
		tested.base, tested.reset = p.url, p.url
	}
	if tested.reset == "" {
		tested.reset = tested.base
	}
	if err := awaitHealth(); err != nil {
		return report(err)
	}
	if err := runMoreAtOnce(); err != nil {
		return report(err)
	}
	return m.Run()
}

func report(err error) int {
	fmt.Fprintln(os.Stderr, "no server to test:", err)
	return 1
}

// runMoreAtOnce lets more tests run at once than there are processors, unless -parallel says how many: most
// of them wait for times of their jobs.
func runMoreAtOnce() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", "24")
}

// process is a server that the tests have started.
type process struct {
	url      string
	cmd      *exec.Cmd
	watchdog *exec.Cmd
	lifeline io.WriteCloser // the watchdog's input
	ended    chan error
}

// launch builds the server, starts it, and returns once it has written its address.
func launch(dir string) (*process, error) {
	binary := filepath.Join(dir, "recourse")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/recourse-dev/recourse/cmd/recourse").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(binary, serveArguments...), ended: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Stderr = dir, log
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
	if p.url, err = readAddress(stdout); err != nil {
		p.stop()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(p.cmd.Args, " "), err, text)
	}
	return p, nil
}

// readAddress returns the address that a server writes once it is ready, and discards what it writes later.
func readAddress(stdout *os.File) (string, error) {
	var info struct {
		URL string `json:"url"`
	}
	if err := stdout.SetReadDeadline(time.Now().Add(launchLimit)); err != nil {
		return "", err
	}
	output := json.NewDecoder(stdout)
	if err := output.Decode(&info); err != nil {
		return "", fmt.Errorf("its address: %w", err)
	}
	if info.URL == "" {
		return "", errors.New("its first output has no url")
	}
	if err := stdout.SetReadDeadline(time.Time{}); err != nil {
		return "", err
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		_ = stdout.Close()
	}()
	return strings.TrimRight(info.URL, "/"), nil
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

// awaitHealth waits until the server says that it is well.
func awaitHealth() error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := askHealth()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

func askHealth() error {
	request, err := http.NewRequest(http.MethodGet, tested.base+root+"/health", nil)
	if err != nil {
		return err
	}
	authorize(request)
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", request.URL, resp.Status)
	}
	return nil
}
