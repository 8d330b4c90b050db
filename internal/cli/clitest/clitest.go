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
	"testing"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Environment is servers, and an environment that names them.
type Environment struct {
	T   *testing.T
	Env map[string]string
	URL string // of the database
}

// New returns a place with a database, and a Redis of its own.
func New(t *testing.T, databaseURL string) *Environment {
	t.Helper()
	redis, _ := testkit.Redis(t)
	return &Environment{T: t, URL: databaseURL, Env: map[string]string{
		app.DatabaseVariable: databaseURL, app.OwnerVariable: testkit.Owner(t, databaseURL), app.RedisVariable: redis.URL(),
	}}
}

// Redis is the server of the environment.
func (p *Environment) Redis() asynq.RedisConnOpt {
	p.T.Helper()
	opt, err := asynq.ParseRedisURI(p.Env[app.RedisVariable])
	if err != nil {
		p.T.Fatal(err)
	}
	return opt
}

// Result is what a command wrote, and how it ended.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs a command line with this text as its standard input.
func (p *Environment) Run(in string, args ...string) Result {
	p.T.Helper()
	return Execute(p.T.Context(), p.Env, strings.NewReader(in), args...)
}

// Execute runs a command line in an environment.
func Execute(ctx context.Context, env map[string]string, in io.Reader, args ...string) Result {
	var out, errs bytes.Buffer
	code := cli.Execute(ctx, args, cli.Streams{In: in, Out: &out, Err: &errs, Getenv: func(name string) string { return env[name] }})
	return Result{code, out.String(), errs.String()}
}

// Object reads the one JSON object of an answer.
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

// Check checks the exit code, and that standard error has one line of ours if it
// has to.
func (s Result) Check(t *testing.T, what string, code int, word string) {
	t.Helper()
	if s.Code != code {
		t.Errorf("%s: exit code %d, want %d: %s", what, s.Code, code, s.Err)
	}
	lines := strings.Split(strings.TrimSuffix(s.Err, "\n"), "\n")
	last := lines[len(lines)-1]
	if code != 0 && (!strings.HasPrefix(last, "recourse: ") || !strings.Contains(last, word)) {
		t.Errorf("%s: %q does not speak of %q", what, s.Err, word)
	}
	if strings.Contains(s.Err+s.Out, "goroutine ") || strings.Contains(s.Err, "Usage:") {
		t.Errorf("%s: noise: %q", what, s.Err)
	}
}

// Line is an adjudication that can be handed over.
const Line = `{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","tenant":"acme",` +
	`"escrow_reference":"esc_1","outcome":"release","amount":{"minor":12500,"currency":"USD"},"held":{"minor":50000,"currency":"USD"}}` + "\n"

// LineFor is the line of another transaction of the same escrow.
func LineFor(id string) string { return strings.ReplaceAll(Line, "txr_1", id) }

// Serve runs a command until the test ends, and gives its first JSON object.
func (p *Environment) Serve(args ...string) (v map[string]any, stop func() int) {
	p.T.Helper()
	ctx, cancel := context.WithCancel(p.T.Context())
	r, w := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		code := cli.Execute(ctx, args, cli.Streams{In: strings.NewReader(""), Out: w, Err: &errs, Getenv: func(n string) string { return p.Env[n] }})
		_ = w.Close() // of a pipe, never fails
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

// Exec runs statements on the database.
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

// RunOf is the first run of a transaction.
func (p *Environment) RunOf(transaction string) string {
	p.T.Helper()
	return p.Run("", "status", "--tenant", "acme", transaction, "--json").Object(p.T)["runs"].([]any)[0].(map[string]any)["run_id"].(string)
}

// OnePerson lets one person do what takes two elsewhere: most tests are of what is done.
func (p *Environment) OnePerson() {
	p.T.Helper()
	p.Exec(`INSERT INTO recourse.installation (demonstration) VALUES (true) ON CONFLICT DO NOTHING`) // --embedded was here while it was empty
	p.Run("", "people", "set", "1", "--tenant", "acme", "--actor", "user:root", "--reason", "test").Check(p.T, "people set", 0, "")
}

// WriteFile writes a file of a test.
func WriteFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// AnyRun is the id of a run that is nowhere.
const AnyRun = "01a1fd9e-dc55-713d-af38-29168766c7d6"

// OpenPTY gives both ends of a terminal.
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
