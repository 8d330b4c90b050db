package clitest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Environment has servers and the environment variables that name them.
type Environment struct {
	T   *testing.T
	Env map[string]string
	URL string // of the database
}

// New returns an environment with the database and a new Redis.
func New(t *testing.T, databaseURL string) *Environment {
	t.Helper()
	redis, _ := testkit.Redis(t)
	return &Environment{T: t, URL: databaseURL, Env: map[string]string{
		app.DatabaseVariable: databaseURL, app.OwnerVariable: testkit.Owner(t, databaseURL), app.RedisVariable: redis.URL(),
	}}
}

// Redis returns the options of the environment's Redis.
func (p *Environment) Redis() asynq.RedisConnOpt {
	p.T.Helper()
	opt, err := asynq.ParseRedisURI(p.Env[app.RedisVariable])
	if err != nil {
		p.T.Fatal(err)
	}
	return opt
}

// Result is the output and the exit code of a command.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs a command line with in as its standard input.
func (p *Environment) Run(in string, args ...string) Result {
	p.T.Helper()
	return Execute(p.T.Context(), p.Env, strings.NewReader(in), args...)
}

// Execute runs a command line in an environment.
func Execute(ctx context.Context, env map[string]string, in io.Reader, args ...string) Result {
	var out bytes.Buffer
	var errs lockedBuffer // a command logs while it reports
	code := cli.Execute(ctx, args, cli.Streams{In: in, Out: &out, Err: &errs, Getenv: func(name string) string { return env[name] }})
	return Result{code, out.String(), errs.String()}
}

// lockedBuffer is a buffer for concurrent writers, as standard error is.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Object returns the one JSON object on standard output.
func (s Result) Object(t *testing.T) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s.Out))
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %q (%q)", err, s.Out, s.Err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("something after the object: %q", s.Out)
	}
	return v
}

// Check checks the exit code. If code is not 0, the last line of standard error must be the error
// and contain word.
func (s Result) Check(t *testing.T, what string, code int, word string) {
	t.Helper()
	if s.Code != code {
		t.Errorf("%s: exit code %d, want %d: %s", what, s.Code, code, s.Err)
	}
	lines := strings.Split(strings.TrimSuffix(s.Err, "\n"), "\n")
	last := lines[len(lines)-1]
	if code != 0 && (!strings.HasPrefix(last, "recourse: ") || !strings.Contains(last, word)) {
		t.Errorf("%s: %q does not contain %q", what, s.Err, word)
	}
	if strings.Contains(s.Err+s.Out, "goroutine ") || strings.Contains(s.Err, "Usage:") {
		t.Errorf("%s: noise: %q", what, s.Err)
	}
}

// Line is a valid adjudication.
const Line = `{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","tenant":"acme",` +
	`"escrow_reference":"esc_1","outcome":"release","amount":{"minor":12500,"currency":"USD"},"held":{"minor":50000,"currency":"USD"}}` + "\n"

// LineFor returns Line for another transaction of the same escrow.
func LineFor(id string) string { return strings.ReplaceAll(Line, "txr_1", id) }

// Serve runs a command until stop or the end of the test, and returns its first JSON object.
func (p *Environment) Serve(args ...string) (v map[string]any, stop func() int) {
	p.T.Helper()
	ctx, cancel := context.WithCancel(p.T.Context())
	r, w := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		code := cli.Execute(ctx, args, cli.Streams{In: strings.NewReader(""), Out: w, Err: &errs, Getenv: func(n string) string { return p.Env[n] }})
		_ = w.Close() // closing a pipe never fails
		done <- code
	}()
	if err := json.NewDecoder(r).Decode(&v); err != nil {
		cancel()
		p.T.Fatalf("exit %d: %v: %s", <-done, err, errs.String())
	}
	return v, func() int {
		cancel()
		return <-done
	}
}

// Exec runs statements on the database as its owner.
func (p *Environment) Exec(statements ...string) {
	p.T.Helper()
	db, err := sql.Open("postgres", testkit.Owner(p.T, p.URL))
	if err != nil {
		p.T.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			p.T.Fatal(err)
		}
	}
}

// RunOf returns the first run of a transaction.
func (p *Environment) RunOf(transaction string) string {
	p.T.Helper()
	return p.Run("", "status", "--tenant", "acme", transaction, "--json").Object(p.T)["runs"].([]any)[0].(map[string]any)["run_id"].(string)
}

// OnePerson sets people to 1. Most tests are not about the second person.
func (p *Environment) OnePerson() {
	p.T.Helper()
	p.Exec(`INSERT INTO recourse.installation (demonstration) VALUES (true) ON CONFLICT DO NOTHING`) // as --embedded does on an empty database
	planned := p.Run("", "people", "set", "1", "--tenant", "acme", "--actor", "user:root", "--reason", "test", "--json")
	planned.Check(p.T, "people set", 5, "another person")
	plan := planned.Object(p.T)["plan"].(map[string]any)
	p.Run("", "dlq", "bulk", "run", plan["id"].(string), "--hash", plan["hash"].(string), "--tenant", "acme", "--actor", "user:bob", "--yes").Check(p.T, "the plan of people", 0, "")
}

// WriteFile writes a file of a test.
func WriteFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// AnyRun is the id of a run that does not exist.
const AnyRun = "01a1fd9e-dc55-713d-af38-29168766c7d6"

// OpenPTY returns both ends of a pseudo-terminal.
func OpenPTY(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}
