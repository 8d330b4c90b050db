package openwop

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
)

const branch = `{"mode":"branch","fromSeq":0}`

func forkPath(run string) string { return "/v1/runs/" + run + ":fork" }

func TestASettlementDiesIsForkedAndIsPaidOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.payer.answer("txr_1", refuses)
	run := f.create(key, adjudication("txr_1"))
	l := f.finished(key, run)
	want := "run.started node.started node.retried node.started node.retried node.started node.failed run.dead_lettered run.failed"
	if l.types() != want {
		t.Fatalf("%s, want %s", l.types(), want)
	}
	died := l.Events[7].Payload
	if fmt.Sprint(died) != fmt.Sprintf("map[attempts:3 nodeId:execute reason:retry_exhausted: http.refused runId:%s]", run) {
		t.Errorf("%v", died)
	}
	if got := l.Events[6].Payload["attempts"]; got != died["attempts"] {
		t.Errorf("node.failed says %v attempts, run.dead_lettered %v", got, died["attempts"])
	}
	if f.status(key, run) != "failed" {
		t.Error(f.status(key, run))
	}
	f.payer.answer("txr_1")
	a := f.want(http.StatusCreated, key, "POST", forkPath(run), `{"mode":"branch","fromSeq":3}`)
	if a.object["sourceRunId"] != run || a.object["fromSeq"] != float64(3) || a.object["mode"] != "branch" || a.object["status"] != "pending" || a.object["eventsUrl"] != f.url+"/v1/runs/"+a.run()+"/events" {
		t.Errorf("%s", a.text)
	}
	if l := f.finished(key, a.run()); l.types() != "run.started node.started node.completed run.completed" {
		t.Errorf("the fork: %s", l.types())
	}
	if got := f.want(http.StatusOK, key, "GET", "/v1/runs/"+a.run(), ""); got.object["sourceRunId"] != run || got.object["status"] != "completed" {
		t.Errorf("%s", got.text)
	}
	if f.status(key, run) != "failed" {
		t.Errorf("the source became %s", f.status(key, run))
	}
	for _, source := range []string{run, a.run()} {
		if got := f.refused(http.StatusConflict, "already_executed", key, "POST", forkPath(source), branch); got.detail("runId") != a.run() {
			t.Errorf("%s", got.text)
		}
	}
	if f.payer.payments() != 1 {
		t.Errorf("%d payments", f.payer.payments())
	}
	if got := f.refused(http.StatusConflict, "already_executed", key, "POST", "/v1/runs", adjudication("txr_1")); got.detail("runId") == nil {
		t.Errorf("%s", got.text)
	}
}

func TestTheNewestRunOfALineIsForked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	first := f.dead(key, "txr_1")
	second := f.want(http.StatusCreated, key, "POST", forkPath(first), branch).run()
	f.finished(key, second)
	a := f.want(http.StatusCreated, key, "POST", forkPath(first), branch)
	third := a.run()
	if a.object["sourceRunId"] != first {
		t.Errorf("%s", a.text)
	}
	f.finished(key, third)
	if got := f.want(http.StatusOK, key, "GET", "/v1/runs/"+third, ""); got.object["sourceRunId"] != second {
		t.Errorf("the third run is a fork of %v, want %s", got.object["sourceRunId"], second)
	}
}

func TestAForkIsRefusedByTheStateOfItsSource(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config, f *fixture) { f.payer.keys = 0; c.InFlight = -1 })
	key := f.all("acme")
	t.Run("unknown money", func(t *testing.T) {
		f.payer.answer("txr_unknown", unclear)
		run := f.create(key, adjudication("txr_unknown"))
		f.finished(key, run)
		if got := f.refused(http.StatusConflict, "reconcile_first", key, "POST", forkPath(run), branch); got.detail("runId") != run {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("at work", func(t *testing.T) {
		run := f.create(key, `{"workflowId":"waits"}`)
		if got := f.refused(http.StatusConflict, "run_already_active", key, "POST", forkPath(run), branch); got.detail("runId") != run {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("paid", func(t *testing.T) {
		run := f.create(key, adjudication("txr_paid"))
		f.finished(key, run)
		if got := f.refused(http.StatusConflict, "already_executed", key, "POST", forkPath(run), branch); got.detail("runId") != run {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("found paid", func(t *testing.T) {
		run := f.dead(key, "txr_found")
		id := parse(t, run)
		f.onePerson()
		if _, err := f.service.As("acme", "user:ann").DeadLetters.Reconcile(context.Background(), id, deadletter.Finding{Reason: "seen at the bank", Class: escrow.Executed, Moved: 12500, Reference: "bank_1", ContradictsRecord: true}); err != nil {
			t.Fatal(err)
		}
		f.refused(http.StatusConflict, "already_executed", key, "POST", forkPath(run), branch)
		if f.status(key, run) != "failed" {
			t.Error(f.status(key, run))
		}
	})
	close(f.block)
}

func TestARunOfAPlainFamilyIsForkedHoweverItEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	completed := f.create(key, `{"workflowId":"chores","inputs":{"n":1}}`)
	f.finished(key, completed)
	failed := f.create(key, `{"workflowId":"chores","inputs":{"fails":true}}`)
	if l := f.finished(key, failed); !strings.HasSuffix(l.types(), "node.failed run.dead_lettered run.failed") {
		t.Errorf("%s", l.types())
	}
	for source, status := range map[string]string{completed: "completed", failed: "failed"} {
		newest := source
		for range 2 {
			a := f.want(http.StatusCreated, key, "POST", forkPath(source), branch)
			f.finished(key, a.run())
			got := f.want(http.StatusOK, key, "GET", "/v1/runs/"+a.run(), "")
			if got.object["status"] != status || got.object["sourceRunId"] != newest {
				t.Errorf("%s, want %s of %s", got.text, status, newest)
			}
			before := f.want(http.StatusOK, key, "GET", "/v1/runs/"+source, "")
			if fmt.Sprint(got.object["variables"]) != fmt.Sprint(before.object["variables"]) {
				t.Errorf("the fork has the inputs %v, its source %v", got.object["variables"], before.object["variables"])
			}
			newest = a.run()
		}
	}
	cancelled := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "POST", "/v1/runs/"+cancelled+"/cancel", `{"reason":"sent in error"}`)
	close(f.block)
	f.finished(key, cancelled)
	f.finished(key, f.want(http.StatusCreated, key, "POST", forkPath(cancelled), branch).run())
	f.verify("acme")
}

// Of many who fork at once one wins, and the others are told of its run.
func TestOneOfManyForksWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	completed := f.create(key, `{"workflowId":"chores"}`)
	f.finished(key, completed)
	dead := f.dead(key, "txr_1")
	f.stop() // so that a fork stays at work
	for _, source := range []string{completed, dead} {
		answers := make([]answer, 8)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				var err error
				if answers[i], err = f.send(f.url, key, "POST", forkPath(source), branch); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		won, losers := "", 0
		for _, a := range answers {
			if a.status == http.StatusCreated {
				won += a.run()
			}
		}
		for _, a := range answers {
			if a.status == http.StatusConflict && a.code() == "run_already_active" && a.detail("runId") == won {
				losers++
			}
		}
		if losers != len(answers)-1 {
			t.Errorf("won: %s, told of it: %d of %d", won, losers, len(answers)-1)
			for _, a := range answers {
				t.Logf("%d %s", a.status, a.text)
			}
		}
	}
}

func TestForksAreCheckedInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.dead(key, "txr_1")
	other := f.all("other")
	const nobody = "01934b2e-7c00-7000-8000-00000000000a"
	f.refused(http.StatusUnauthorized, "unauthenticated", "", "POST", forkPath(run), `{"mode":"rewind"}`)
	f.refused(http.StatusBadRequest, "validation_error", other, "POST", forkPath(run), `{"mode":"rewind","fromSeq":0}`)
	foreign := f.refused(http.StatusNotFound, "not_found", other, "POST", forkPath(run), `{"mode":"replay","fromSeq":999}`)
	unknown := f.refused(http.StatusNotFound, "not_found", other, "POST", forkPath(nobody), `{"mode":"replay","fromSeq":999}`)
	malformed := f.refused(http.StatusNotFound, "not_found", other, "POST", forkPath("x"), branch)
	if string(foreign.text) != string(unknown.text) || string(foreign.text) != string(malformed.text) {
		t.Errorf("the refusals differ: %s %s %s", foreign.text, unknown.text, malformed.text)
	}
	f.refused(http.StatusUnprocessableEntity, "fork_point_invalid", key, "POST", forkPath(run), `{"mode":"replay","fromSeq":9}`)
	f.refused(http.StatusUnprocessableEntity, "fork_point_invalid", key, "POST", forkPath(run), `{"mode":"branch","fromSeq":9}`)
	f.refused(http.StatusNotImplemented, "fork_unsupported_mode", key, "POST", forkPath(run), `{"mode":"replay"}`)
	f.refused(http.StatusForbidden, "forbidden", f.key("acme", access.Submitter), "POST", forkPath(run), branch)
	f.want(http.StatusCreated, key, "POST", forkPath(run), `{"mode":"branch","fromSeq":8}`)
}

// The days of the advertisement are counted from the death, to the moment. A hold keeps the dead letter for
// the other doors, and not for this one.
func TestADeadRunIsGoneWhenItsDaysAreOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	held, plain := f.dead(key, "txr_1"), f.create(key, `{"workflowId":"chores","inputs":{"fails":true}}`)
	f.finished(key, plain)
	if _, err := f.service.As("acme", "user:ann").DeadLetters.Hold(context.Background(), parse(t, held), "an audit"); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(days*24*time.Hour - time.Minute)
	fork := f.want(http.StatusCreated, key, "POST", forkPath(plain), branch).run()
	f.finished(key, fork)
	f.clock.Advance(time.Minute + time.Second)
	const nobody = "01934b2e-7c00-7000-8000-00000000000a"
	for _, request := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"GET", "/events/poll?timeout=1", ""}, {"GET", "/events", ""}, {"POST", "/cancel", ""}, {"POST", ":fork", branch},
	} {
		want := f.refused(http.StatusNotFound, "not_found", key, request.method, "/v1/runs/"+nobody+request.path, request.body)
		for _, run := range []string{held, plain} {
			if got := f.refused(http.StatusNotFound, "not_found", key, request.method, "/v1/runs/"+run+request.path, request.body); string(got.text) != string(want.text) {
				t.Errorf("%s: %s, of an id that never existed %s", request.path, got.text, want.text)
			}
		}
	}
	if f.status(key, fork) != "failed" {
		t.Error("the fork has days of its own")
	}
	if letter, err := f.service.As("acme", "user:ann").DeadLetters.Inspect(context.Background(), parse(t, held)); err != nil || letter.Letter.Run.String() != held {
		t.Errorf("the held letter: %v", err)
	}
}

// A request whose process died after its commit is sent again, under the same key, once its time is over.
func TestARepeatedRequestFindsWhatItMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	dead := f.dead(key, "txr_1")
	for _, c := range []struct{ name, path, body string }{
		{"settlement", "/v1/runs", adjudication("txr_2")},
		{"task", "/v1/runs", `{"workflowId":"chores","inputs":{"fails":true}}`},
		{"task that completes", "/v1/runs", `{"workflowId":"chores"}`},
		{"fork", forkPath(dead), branch},
	} {
		first := f.want(http.StatusCreated, key, "POST", c.path, c.body, "Idempotency-Key", strings.ReplaceAll(c.name, " ", "-")).run()
		f.finished(key, first)
		// As a process leaves it that dies between the commit and the answer.
		if _, err := f.db.Exec(`UPDATE recourse.requests SET status = NULL, headers = '', body = NULL, began = began - interval '3 minutes'`); err != nil {
			t.Fatal(err)
		}
		again := f.want(http.StatusCreated, key, "POST", c.path, c.body, "Idempotency-Key", strings.ReplaceAll(c.name, " ", "-"))
		if again.run() != first {
			t.Errorf("%s: the repeated request made run %s, the first one %s", c.name, again.run(), first)
		}
	}
	var runs int
	if err := f.db.QueryRow(`SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil || runs != 5 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// parse returns the id of a run.
func parse(t *testing.T, run string) receipts.RunID {
	t.Helper()
	id, err := receipts.ParseRunID(run)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// verify requires that the receipts of a tenant agree with everything that is stored.
func (f *fixture) verify(tenant string) {
	f.Helper()
	if err := f.service.DrainEvents(f.Context()); err != nil {
		f.Fatal(err)
	}
	report, err := audit.Run(f.Context(), f.service.AuditReader(), audit.Query{Tenants: []string{tenant}})
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range audit.Invariants {
		if verdict := report.Verdict(name); verdict != "ok" {
			f.Errorf("invariant %q: %s: %+v", name, verdict, report.Breaks)
		}
	}
}
