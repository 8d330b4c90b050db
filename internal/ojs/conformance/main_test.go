package conformance_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit/program"
)

// server is a server under test.
type server struct {
	base  string            // of its paths, without a slash at the end
	reset string            // base of the paths of its test mode
	key   string            // of every request; empty: none, or one of keys
	keys  map[string]string // by their roles, of which a request takes what it needs; nil: none
}

// tested is the server of all tests but those of withKeys.
var tested server

// programs has the program under test.
var programs *program.Programs

// serverOf returns the server that a test is about.
func serverOf(t *testing.T) server {
	t.Helper()
	if !strings.HasPrefix(t.Name(), ofKeys) {
		return tested
	}
	s, err := withKeys()
	if err != nil {
		t.Errorf("no server with keys: %v", err)
	}
	return s
}

// serveArguments start a server that has everything of its own and takes the requests of its test mode. With
// --json its first output is an object with its address. It keeps few dead letters of a queue, which is how the
// tests can exceed their number soon; the server with keys keeps as many as a server does by default.
var serveArguments = []string{"serve", "--private", "--embedded", "--test-mode", "--listen", "127.0.0.1:0", "--json", "--retain", "ojs=P180D/200"}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	tested = server{base: strings.TrimRight(os.Getenv("OJS_URL"), "/"), reset: strings.TrimRight(os.Getenv("OJS_RESET_URL"), "/"), key: os.Getenv("OJS_KEY")}
	var err error
	if programs, err = program.New(); err != nil {
		return report(err)
	}
	defer func() {
		if err := programs.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if tested.base == "" {
		p, err := programs.Launch("test-mode", programs.Path("recourse"), serveArguments...)
		if err != nil {
			return report(err)
		}
		tested.base, tested.reset = p.URL, p.URL
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
	return flag.Set("test.parallel", "12")
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
	tested.authorize(request)
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
