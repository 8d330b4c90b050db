package cli_test

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// What submits, reads and stops a case works with a key as it does on the database, and records the key's principal.
func TestACaseIsHandedOverReadAndStoppedAtAServer(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	server := v["url"].(string)
	key := func(principal, roles string, of ...string) map[string]string {
		made := p.Run("", append([]string{"keys", "create", "--principal", principal, "--actor", "root", "--reason", "r", "--json", "--roles", roles}, of...)...)
		made.Check(t, principal, 0, "")
		return map[string]string{backend.KeyVariable: made.Object(t)["token"].(string), "RECOURSE_SERVER": server}
	}
	submitter, operator := key("service:shop", "submitter", "--tenant", "acme"), key("user:ada", "operator", "--tenant", "acme")
	at := func(env map[string]string, in string, args ...string) clitest.Result {
		return clitest.Execute(t.Context(), env, strings.NewReader(in), args...)
	}

	at(operator, "", "breaker", "open", "--reason", "maintenance", "--target", "bankk").Check(t, "a target that is not there", 2, "no process calls the target bankk; the known ones are escrow")
	at(operator, "", "breaker", "open", "--reason", "maintenance").Check(t, "open", 0, "open")
	at(operator, "", "breaker", "open").Check(t, "no reason", 2, "needed")
	at(operator, "", "breaker", "open", "--reason", "x", "--actor", "me").Check(t, "an actor", 2, "--actor cannot be used with --server")
	at(operator, "", "breaker", "list").Check(t, "list", 0, "maintenance")
	at(operator, "", "breaker", "list", "--all-tenants").Check(t, "all tenants", 1, "another tenant")

	lines := clitest.LineFor("txr_1") + "nonsense\n" + strings.Replace(clitest.LineFor("txr_2"), `"acme"`, `"other"`, 1) + clitest.LineFor("txr_3")
	said := at(submitter, lines, "submit", "-", "--json")
	said.Check(t, "submit", 1, "2 lines not accepted")
	if answer := said.Object(t); answer["replies"].(map[string]any)["created"] != 2.0 || answer["bad_lines"] != 2.0 || answer["refused"].([]any)[1].(map[string]any)["line"] != 3.0 {
		t.Errorf("%v", answer)
	}
	at(submitter, "\ufeff"+strings.ReplaceAll(lines, "\n", "\r\n"), "submit", "-").Check(t, "sent again, as another program saved it", 1, "2 lines not accepted")
	at(submitter, "PK\x03\x04", "submit", "-").Check(t, "a spreadsheet", 2, "it is a zip archive")
	at(submitter, lines, "submit", "-", "--target", "bank").Check(t, "targets of the server", 2, "--target cannot be used with --server")
	at(operator, lines, "submit", "-").Check(t, "an operator submits", 1, "it needs the role submitter")
	p.Run(lines, "submit", "-", "--tenant", "acme").Check(t, "a tenant on the database", 2, "--tenant needs --server")

	status := at(operator, "", "status", "txr_1", "--json")
	status.Check(t, "status", 0, "")
	run := status.Object(t)["runs"].([]any)[0].(map[string]any)["run_id"].(string)
	for _, what := range []string{"txr_1", run, status.Object(t)["case_id"].(string)} {
		if here, there := p.Run("", "status", what, "--tenant", "acme", "--json").Out, at(operator, "", "status", what, "--json").Out; here != there {
			t.Errorf("status %s:\n%s\n%s", what, here, there)
		}
	}
	at(operator, "", "status", "txr_1").Check(t, "for people", 0, "paused")
	byItsEnd(t, run, p, func(in string, args ...string) clitest.Result { return at(submitter, in, args...) }, func(args ...string) clitest.Result { return at(operator, "", args...) })
	at(operator, "", "status", "txr_9").Check(t, "what is not there", 1, "the key's tenant has no txr_9")
	at(operator, "", "status", "\xff").Check(t, "no text", 1, "the key's tenant has no")
	p.Run("", "status", "\xff", "--tenant", "acme").Check(t, "no text, on the database", 2, "UTF-8")
	p.Run("", "receipts", "list", "--transaction", "\xff", "--tenant", "acme").Check(t, "receipts of no text", 2, "UTF-8")
	at(submitter, "", "status", "txr_1").Check(t, "a submitter's own", 0, "The attempts are left out: the access key may not read receipts.")

	at(operator, "", "cancel", run, "--reason", "sent in error").Check(t, "cancel", 0, "is cancelled")
	at(operator, "", "cancel", run, "--reason", "sent in error").Check(t, "again", 0, "is cancelled")
	at(operator, "", "breaker", "release", "--reason", "done").Check(t, "release", 0, "closed")
	at(operator, "", "breaker", "history").Check(t, "its history", 0, "user:ada")
	for _, selection := range [][]string{{"--transaction", "txr_1"}, {"--run", run, "--limit", "1"}, {"--run", run, "--after", "1"}} {
		args := append([]string{"receipts", "list", "--json"}, selection...)
		here, there := p.Run("", append(args, "--tenant", "acme")...), at(operator, "", args...)
		if there.Check(t, "receipts", 0, ""); here.Out != there.Out {
			t.Errorf("receipts %v:\n%s\n%s", selection, here.Out, there.Out)
		}
	}
	at(operator, "", "receipts", "list", "--transaction", "txr_1").Check(t, "receipts for people", 0, "user:ada")
	at(operator, "", "receipts", "list", "--transaction", "txr_9").Check(t, "of nobody", 1, "the key's tenant has no transaction txr_9")

	did := []string{"receipts", "list", "--json", "--actor", "user:ada", "--since", "2020-01-01"}
	var here, there clitest.Result
	poll.Until(t, "all that ada did has its place, and is the same at both", func() bool {
		here, there = p.Run("", append(did, "--tenant", "acme")...), at(operator, "", did...)
		return here.Code == 0 && here.Out == there.Out && strings.Contains(there.Out, "breaker-released")
	})
	file := filepath.Join(t.TempDir(), "receipts")
	p.Run("", "receipts", "export", "--tenant", "acme", file).Check(t, "export", 0, "")
	if in := p.Run("", append(did, "--file", file)...); in.Code != 0 || len(in.Object(t)["receipts"].([]any)) != len(there.Object(t)["receipts"].([]any)) {
		t.Errorf("what ada did, in the file:\n%s\n%s", in.Out, there.Out)
	}
	at(operator, "", "receipts", "list", "--subtype", "breaker-opened").Check(t, "by subtype", 0, "maintenance")
	at(operator, "", "receipts", "list", "--actor", "user:ada", "--limit", "1").Check(t, "more", 0, "There are more: --after ")

	followsToACancel(t, operator)
	if here, there := p.Run("", "events", "--tenant", "acme", "--json", "--limit", "2"), at(operator, "", "events", "--json", "--limit", "2"); there.Code != 0 || here.Out != there.Out {
		t.Errorf("events:\n%s\n%+v", here.Out, there)
	}
	at(operator, "", "events", "--after", "900000000").Check(t, "beyond the newest", 2, "--after")
	at(operator, "", "events", "--after", "900000000", "--follow").Check(t, "following beyond the newest", 2, "--after")
}

// byItsEnd finds cases by the ends of their transactions and runs, at a server as on the database.
func byItsEnd(t *testing.T, run string, p *clitest.Environment, submitter func(in string, args ...string) clitest.Result, operator func(args ...string) clitest.Result) {
	t.Helper()
	submitter(clitest.LineFor("order-71")+clitest.LineFor("basket-order-71"), "submit", "-").Check(t, "submit", 0, "")
	onDatabase := func(args ...string) clitest.Result { return p.Run("", append(args, "--tenant", "acme")...) }
	for _, status := range []func(args ...string) clitest.Result{operator, onDatabase} {
		for _, c := range []struct {
			what string
			code int
			want string
		}{
			{run[24:], 0, "txr_1"}, {strings.ToUpper(run[24:]), 0, "txr_1"}, {"et-order-71", 0, "basket-order-71"}, {"order-71", 0, "order-71"},
			{"rder-71", 2, "rder-71 is the end of 2 cases:"}, {"rder-71", 2, " of transaction basket-order-71"}, {"er-71", 1, "has no er-71"}, {"order-%", 1, "has no order-%"},
		} {
			status("status", c.what).Check(t, c.what, c.code, c.want)
		}
	}
	submitter("", "status", "et-order-71").Check(t, "by who may not list cases", 1, "the key's tenant has no et-order-71")
}

// followsToACancel follows the events at a server until a run is cancelled, and ends well.
func followsToACancel(t *testing.T, env map[string]string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	from, to := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Execute(ctx, []string{"events", "--follow", "--json"}, cli.Streams{In: strings.NewReader(""), Out: to, Err: io.Discard, Getenv: func(name string) string { return env[name] }})
		_ = to.Close() // closing a pipe never fails
	}()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if strings.Contains(lines.Text(), "run.cancelled") {
			interrupt() // what it writes until it ends is read, too
		}
	}
	if code := <-ended; code != 0 {
		t.Errorf("following ended with %d", code)
	}
}
