package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// place is servers, and an environment that names them.
type place struct {
	t   *testing.T
	env map[string]string
	url string // of the database
}

func newPlace(t *testing.T, databaseURL string) *place {
	t.Helper()
	redis, _ := testkit.Redis(t)
	return &place{t: t, url: databaseURL, env: map[string]string{
		app.DatabaseVariable: databaseURL, app.RedisVariable: redis.URL(),
	}}
}

// redis is the server of the environment.
func (p *place) redis() asynq.RedisConnOpt {
	p.t.Helper()
	opt, err := asynq.ParseRedisURI(p.env[app.RedisVariable])
	if err != nil {
		p.t.Fatal(err)
	}
	return opt
}

// said is what a command wrote, and how it ended.
type said struct {
	code     int
	out, err string
}

func (p *place) run(in string, args ...string) said {
	p.t.Helper()
	return execute(p.t.Context(), p.env, strings.NewReader(in), args...)
}

func execute(ctx context.Context, env map[string]string, in io.Reader, args ...string) said {
	var out, errs bytes.Buffer
	code := cli.Execute(ctx, args, cli.Streams{In: in, Out: &out, Err: &errs, Getenv: func(name string) string { return env[name] }})
	return said{code, out.String(), errs.String()}
}

// object reads the one JSON object of an answer.
func (s said) object(t *testing.T) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s.out))
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %q (%q)", err, s.out, s.err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("something after the object: %q", s.out)
	}
	return v
}

// wants checks the exit code, and that standard error has one line of ours if it
// has to.
func (s said) wants(t *testing.T, what string, code int, word string) {
	t.Helper()
	if s.code != code {
		t.Errorf("%s: exit code %d, want %d: %s", what, s.code, code, s.err)
	}
	lines := strings.Split(strings.TrimSuffix(s.err, "\n"), "\n")
	last := lines[len(lines)-1]
	if code != 0 && (!strings.HasPrefix(last, "recourse: ") || !strings.Contains(last, word)) {
		t.Errorf("%s: %q does not speak of %q", what, s.err, word)
	}
	if strings.Contains(s.err+s.out, "goroutine ") || strings.Contains(s.err, "Usage:") {
		t.Errorf("%s: noise: %q", what, s.err)
	}
}

const line = `{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","tenant":"acme",` +
	`"escrow_reference":"esc_1","outcome":"release","amount":{"minor":12500,"currency":"USD"},"held":{"minor":50000,"currency":"USD"}}` + "\n"

// another is the line of another transaction of the same escrow.
func another(id string) string { return strings.ReplaceAll(line, "txr_1", id) }
