package openwop

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// crash leaves every request as a process does that dies between the commit and the answer, long ago.
func (f *fixture) crash() {
	f.Helper()
	if _, err := f.db.Exec(`UPDATE recourse.requests SET status = NULL, headers = '', body = NULL, began = began - interval '3 minutes'`); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) runs() (n int) {
	f.Helper()
	if err := f.db.QueryRow(`SELECT count(*) FROM recourse.runs`).Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

// A fork is committed, its process dies before the answer, the fork dies, and another operator forks that.
// The client repeats its request under its key: it must hear of its fork, and must not make another.
func TestOneKeyMakesOneFork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, other := f.all("acme"), f.key("acme", access.Operator)
	dead := f.dead(key, "txr_1")
	first := f.want(http.StatusCreated, key, "POST", forkPath(dead), branch, "Idempotency-Key", "fork-1").run()
	f.finished(key, first)
	f.crash()
	second := f.want(http.StatusCreated, other, "POST", forkPath(dead), branch).run()
	f.finished(key, second)
	before := f.runs()
	again := f.ask(key, "POST", forkPath(dead), branch, "Idempotency-Key", "fork-1")
	if n := f.runs(); n != before || again.run() != first {
		t.Errorf("the same key made %s, then %d %s: %d runs became %d", first, again.status, again.text, before, n)
	}
}

// As above, but the same principal forked under another key: two keys are answered with one run.
func TestEachKeyIsAnsweredWithItsOwnFork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	dead := f.dead(key, "txr_1")
	first := f.want(http.StatusCreated, key, "POST", forkPath(dead), branch, "Idempotency-Key", "fork-1").run()
	f.finished(key, first)
	f.crash()
	second := f.want(http.StatusCreated, key, "POST", forkPath(dead), branch, "Idempotency-Key", "fork-2").run()
	f.finished(key, second)
	if again := f.ask(key, "POST", forkPath(dead), branch, "Idempotency-Key", "fork-1"); again.run() != first {
		t.Errorf("fork-1 made %s, fork-2 made %s; fork-1 repeated: %d %s", first, second, again.status, again.text)
	}
}

// A create is committed and its process dies before the answer; the run dies and is forked. The create
// repeated must name the run that it made.
func TestARepeatedCreateNamesItsOwnRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.payer.answer("txr_1", refuses)
	first := f.want(http.StatusCreated, key, "POST", "/v1/runs", adjudication("txr_1"), "Idempotency-Key", "c-1").run()
	f.finished(key, first)
	f.crash()
	fork := f.want(http.StatusCreated, key, "POST", forkPath(first), branch).run()
	f.finished(key, fork)
	if again := f.ask(key, "POST", "/v1/runs", adjudication("txr_1"), "Idempotency-Key", "c-1"); again.run() != first || again.status != http.StatusCreated {
		t.Errorf("c-1 made %s (its fork is %s); repeated: %d %s", first, fork, again.status, again.text)
	}
}

// A process dies before it commits a create. The client submits other content for the transaction under
// another key, then repeats the first request: it contradicts what is executed, and must not be 201.
func TestAContradictionIsNotAnsweredAsCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	const mine = `{"workflowId":"settlement","inputs":{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","escrow_reference":"esc_txr_1","outcome":"refund","amount":{"minor":99,"currency":"USD"},"held":{"minor":12500,"currency":"USD"}}}`
	principal := "service:" + string(access.Roles()[0])
	h := sha256.New()
	for _, part := range []string{"recourse request 1", principal, "POST", "/v1/runs", ""} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write([]byte(mine))
	scope := sha256.Sum256([]byte("POST /v1/runs\n" + "c-1"))
	if _, _, err := f.service.BeginRequest(t.Context(), "acme", principal+" "+hex.EncodeToString(scope[:]), [32]byte(h.Sum(nil))); err != nil {
		t.Fatal(err)
	}
	if _, err := f.db.Exec(`UPDATE recourse.requests SET began = began - interval '3 minutes'`); err != nil {
		t.Fatal(err)
	}
	other := f.want(http.StatusCreated, key, "POST", "/v1/runs", adjudication("txr_1"), "Idempotency-Key", "c-2").run()
	f.finished(key, other)
	if again := f.ask(key, "POST", "/v1/runs", mine, "Idempotency-Key", "c-1"); again.status == http.StatusCreated {
		shown := f.want(http.StatusOK, key, "GET", "/v1/runs/"+again.run(), "")
		t.Errorf("a refund of 99 is answered 201 with the run of another adjudication: %s", shown.text)
	}
}

// A task is committed and its process dies before the answer; the repeated request meets a lock and is told to
// try again (503). The third request must not execute the task a second time.
func TestA503DoesNotForgetThatAKeyWasUsed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	const body = `{"workflowId":"chores"}`
	first := f.want(http.StatusCreated, key, "POST", "/v1/runs", body, "Idempotency-Key", "c-1").run()
	f.finished(key, first)
	f.crash()
	unlock := testkit.LockTables(t, f.db, `recourse.cases IN ACCESS EXCLUSIVE MODE`)
	busy := f.ask(key, "POST", "/v1/runs", body, "Idempotency-Key", "c-1")
	unlock()
	if busy.status < 500 {
		t.Fatalf("the lock was not in the way: %d %s", busy.status, busy.text)
	}
	if again := f.ask(key, "POST", "/v1/runs", body, "Idempotency-Key", "c-1"); again.run() != first || f.runs() != 1 {
		t.Errorf("c-1 made %s; after %d it is answered %d %s, %d runs", first, busy.status, again.status, again.text, f.runs())
	}
}

// Tasks may share a retry key, such as those of an Idempotency-Key that is used again after its day. A fork
// of the first must execute with the inputs of the first.
func TestAForkExecutesWithItsOwnInputs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	first := f.want(http.StatusCreated, key, "POST", "/v1/runs", `{"workflowId":"chores","inputs":{"n":1}}`, "Idempotency-Key", "daily").run()
	f.finished(key, first)
	f.clock.Advance(25 * time.Hour)
	second := f.want(http.StatusCreated, key, "POST", "/v1/runs", `{"workflowId":"chores","inputs":{"n":2}}`, "Idempotency-Key", "daily").run()
	f.finished(key, second)
	fork := f.ask(key, "POST", forkPath(first), branch)
	if fork.status != http.StatusCreated {
		return
	}
	got := f.want(http.StatusOK, key, "GET", "/v1/runs/"+fork.run(), "")
	if fmt.Sprint(got.object["variables"]) != "map[n:1]" || got.object["sourceRunId"] != first {
		t.Errorf("the fork of %s, whose inputs are n=1, is %s", first, got.text)
	}
}

// A key used again after its day is a new request: the letter of the old one must not refuse it.
func TestAnExpiredKeyIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	first := f.want(http.StatusCreated, key, "POST", "/v1/runs", `{"workflowId":"chores","inputs":{"fails":true}}`, "Idempotency-Key", "daily").run()
	f.finished(key, first)
	f.clock.Advance(25 * time.Hour)
	if a := f.ask(key, "POST", "/v1/runs", `{"workflowId":"chores","inputs":{"n":2}}`, "Idempotency-Key", "daily"); a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.text)
	}
}

// The program that embeds the library submits a task whose payload is no object.
func TestARunWithoutAnObjectCanBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	for _, payload := range []string{"", `[1]`, `null`} {
		made, err := f.service.SubmitTask(t.Context(), postadjudication.Task{Tenant: "acme", Family: "chores", Payload: json.RawMessage(payload), Actor: "user:ann"})
		if err != nil {
			t.Fatal(err)
		}
		if a := f.ask(key, "GET", "/v1/runs/"+made.Run.String(), ""); a.status != http.StatusOK {
			t.Errorf("payload %q: %d %s", payload, a.status, a.text)
		}
	}
}

// From the end of its days a run is to this door as one that never existed.
func TestACreateNamesNoRunThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.dead(key, "txr_1")
	f.clock.Advance(days*24*time.Hour + time.Minute)
	f.refused(http.StatusNotFound, "not_found", key, "POST", forkPath(run), branch)
	if a := f.ask(key, "POST", "/v1/runs", adjudication("txr_1")); a.detail("runId") != nil {
		t.Errorf("the run is 404, and yet: %d %s", a.status, a.text)
	}
}

// A refusal that the state of a run causes is not final: once the run has ended, the request under the same
// key can be executed.
func TestARefusalThatIsNotFinalIsNotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	f.refused(http.StatusConflict, "run_already_active", key, "POST", forkPath(run), branch, "Idempotency-Key", "fork-1")
	close(f.block)
	f.finished(key, run)
	if a := f.ask(key, "POST", forkPath(run), branch, "Idempotency-Key", "fork-1"); a.status != http.StatusCreated {
		t.Errorf("the run has ended, and yet: %d %s", a.status, a.text)
	}
}

// Only a purge by people ends the days of a dead-lettered run early.
func TestARunPurgedByHandIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores","inputs":{"fails":true}}`)
	f.finished(key, run)
	f.onePerson()
	plans := f.service.As("acme", "user:ann").Bulk
	plan, err := plans.Plan(t.Context(), bulk.Request{Filter: deadletter.Filter{Family: "chores"}, Action: bulk.Purge, Reason: "tidy"})
	if err != nil {
		t.Fatal(err)
	}
	if plan, err = plans.RunHere(t.Context(), plan.ID, plan.Hash); err != nil || plan.Progress.Done != 1 {
		t.Fatalf("%+v %v", plan, err)
	}
	f.refused(http.StatusNotFound, "not_found", key, "GET", "/v1/runs/"+run, "")
}
