package api_test

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

const idempotency = "Idempotency-Key"

func TestARepeatedRequestIsAnsweredAsBeforeAndDoneOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	operator := r.key("acme", access.Operator)
	path := "/api/v1/dead-letters/" + r.letter("acme", 1, `"refused"`) + "/fork"
	const body = `{"reason":"mended"}`
	first := r.ask(operator, http.MethodPost, path, body, idempotency, "ticket-1")
	first.is(http.StatusCreated)
	again := r.ask(operator, http.MethodPost, path, body, idempotency, "ticket-1")
	again.is(http.StatusCreated)
	if again.text != first.text || again.header.Get("Location") != first.header.Get("Location") || again.header.Get(door.ReplayedHeader) != "true" || first.header.Get(door.ReplayedHeader) != "" ||
		again.header.Get("Content-Type") != first.header.Get("Content-Type") {
		t.Errorf("%s %v\n%s %v", first.text, first.header, again.text, again.header)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'manual-retry-requested'`); n != 1 {
		t.Errorf("%d forks", n)
	}
	r.ask(operator, http.MethodPost, path, `{"reason":"another"}`, idempotency, "ticket-1").refused(http.StatusUnprocessableEntity, "idempotency_mismatch", "")
	r.ask(operator, http.MethodPost, "/api/v1/breakers/open", body, idempotency, "ticket-1").refused(http.StatusUnprocessableEntity, "idempotency_mismatch", "")
	// An Idempotency-Key belongs to a principal of a tenant.
	r.ask(r.key("other", access.Operator), http.MethodPost, "/api/v1/breakers/open", body, idempotency, "ticket-1").is(http.StatusOK)
	token := r.ask(r.keyOf("user:boss", time.Time{}, access.Admin, access.Operator), http.MethodPost, "/api/v1/keys", `{"principal":"user:bob","roles":["operator"],"reason":"x"}`).is(http.StatusCreated)["token"].(string)
	r.ask(token, http.MethodPost, path, body, idempotency, "ticket-1").refused(http.StatusConflict, "not_open", "")
	r.ask(operator, http.MethodPost, path, body, idempotency, strings.Repeat("x", 256)).refused(http.StatusUnprocessableEntity, "invalid", idempotency)
	r.ask(r.key("acme", access.Auditor), http.MethodPost, path, body, idempotency, "ticket-1").refused(http.StatusForbidden, "role_missing", "")
}

func TestWhatWasRefusedMayBeTriedAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	operator := r.key("acme", access.Operator)
	const body = `{"reason":"x"}`
	for range 2 {
		r.ask(operator, http.MethodPost, "/api/v1/breakers/release", body, idempotency, "k").refused(http.StatusConflict, "breaker_not_open", "")
	}
	r.ask(operator, http.MethodPost, "/api/v1/breakers/open", body).is(http.StatusOK)
	r.ask(operator, http.MethodPost, "/api/v1/breakers/release", body, idempotency, "k").is(http.StatusOK)
	if n := r.count(`SELECT count(*) FROM recourse.requests WHERE status = 200`); n != 1 {
		t.Errorf("%d requests kept", n)
	}
}

func TestARequestInProgressIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const path, body = "/api/v1/breakers/open", `{"reason":"x"}`
	_, begun, err := r.main.Service.BeginRequest(t.Context(), "acme", "user:operator@acme k", digestOf(path, body))
	if err != nil || begun == nil {
		t.Fatalf("%v, %v", begun, err)
	}
	busy := r.ask(r.key("acme", access.Operator), http.MethodPost, path, body, idempotency, "k")
	busy.refused(http.StatusConflict, "idempotency_in_progress", "")
	if busy.header.Get("Retry-After") != "1" {
		t.Errorf("%v", busy.header)
	}
	if err := begun.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.ask(r.key("acme", access.Operator), http.MethodPost, path, body, idempotency, "k").is(http.StatusOK)
}

func TestOneOfManyEqualRequestsAtOnceIsDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.key("acme", access.Admin)
	const body = `{"principal":"user:ada","roles":["auditor"],"reason":"x"}`
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a := r.ask(admin, http.MethodPost, "/api/v1/keys", body, idempotency, "k")
			if a.status != http.StatusCreated && a.status != http.StatusConflict {
				t.Errorf("%d %s", a.status, a.text)
			}
		})
	}
	all.Wait()
	if n := r.count(`SELECT count(*) FROM recourse.keys WHERE principal = 'user:ada'`); n != 1 {
		t.Errorf("%d keys", n)
	}
	// The secret is shown once, and stored nowhere.
	again := r.ask(admin, http.MethodPost, "/api/v1/keys", body, idempotency, "k").is(http.StatusCreated)
	if again["token"] != nil || again["prefix"] == nil {
		t.Errorf("%v", again)
	}
	if n := r.count(`SELECT count(*) FROM recourse.requests WHERE convert_from(body, 'UTF8') LIKE '%rck_%'`); n != 0 {
		t.Error("a token is stored")
	}
}

// One key, as a string in quotes (RFC 9651) and bare, and one body, whatever its order, blanks and forms of numbers:
// that is one request. A whole number that a double does not hold is compared with all its digits.
func TestARequestIsTheSameByWhatItMeans(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	admin := r.key("acme", access.Admin)
	const path = "/api/v1/keys"
	first := r.ask(admin, http.MethodPost, path, `{"principal":"user:ada","roles":["auditor"],"reason":"\u0078"}`, idempotency, `a "b`)
	first.is(http.StatusCreated)
	for key, body := range map[string]string{
		`a "b`:    "{ \"roles\": [\"auditor\"],\n\"reason\": \"x\", \"principal\": \"user:ada\" }",
		`"a \"b"`: `{"principal":"user:ada","roles":["auditor"],"reason":"x"}`,
	} {
		if again := r.ask(admin, http.MethodPost, path, body, idempotency, key); again.is(http.StatusCreated)["prefix"] != first.object()["prefix"] || again.header.Get(door.ReplayedHeader) != "true" {
			t.Errorf("%s: %s", key, again.text)
		}
	}
	r.ask(admin, http.MethodPost, path, `{"principal":"user:ada","roles":["auditor"],"reason":"y"}`, idempotency, `"a \"b"`).refused(http.StatusUnprocessableEntity, "idempotency_mismatch", "")
	for _, key := range []string{`"abc`, `"a"b"`, `"a\b"`, `"ä"`, `"a" b`} {
		r.ask(admin, http.MethodPost, path, `{}`, idempotency, key).refused(http.StatusBadRequest, "malformed", idempotency)
	}
	r.ask(admin, http.MethodPost, path, `{"principal":"user:ada","roles":["auditor"],"reason":"x"}`, idempotency, `""`).refused(http.StatusUnprocessableEntity, "invalid", idempotency)

	operator := r.key("acme", access.Operator)
	call := func(path, number string) answer {
		return r.ask(operator, http.MethodPost, path, `{"action":"hold","all":true,"limit":`+number+`,"reason":"x"}`, idempotency, "k")
	}
	r.letter("acme", 1, `"refused"`)
	call("/api/v1/bulk", "9007199254740992").is(http.StatusCreated)
	call("/api/v1/bulk", "9007199254740993").refused(http.StatusUnprocessableEntity, "idempotency_mismatch", "")
}

// Requests that a version stored that compared bytes, and took quotes for a part of a key, stay the same requests.
func TestWhatAnEarlierVersionStoredStaysTheSameRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const path, body, key = "/api/v1/breakers/open", `{ "reason": "x" }`, `"k"`
	_, begun, err := r.main.Service.BeginRequest(t.Context(), "acme", "user:operator@acme "+key, digestOf(path, body))
	if err != nil || begun == nil {
		t.Fatalf("%v, %v", begun, err)
	}
	if err := begun.Answer(t.Context(), postadjudication.StoredResponse{Status: http.StatusOK, Headers: `{"Content-Type":"application/json"}`, Body: []byte(`{"was":"stored"}`)}); err != nil {
		t.Fatal(err)
	}
	if again := r.ask(r.key("acme", access.Operator), http.MethodPost, path, body, idempotency, key); again.is(http.StatusOK)["was"] != "stored" {
		t.Error(again.text)
	}
}

// digestOf returns the digest of a POST of the operator of acme.
func digestOf(path, body string) [32]byte {
	h := sha256.New()
	for _, part := range []string{"recourse request 1", "user:operator@acme", http.MethodPost, path, ""} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write([]byte(body))
	return [32]byte(h.Sum(nil))
}

// The process that made a fork, a retry or a plan dies before it stored its answer: the request sent again
// under its key is answered with what was made, and makes nothing more. Another request is refused.
func TestWhatAnInterruptedRequestMadeIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	operator := r.key("acme", access.Operator)
	const body = `{"reason":"mended"}`
	for i, asked := range []string{"fork", "retry"} {
		letter := r.letter("acme", i+1, `"refused","refused"`)
		path := "/api/v1/dead-letters/" + letter + "/" + asked
		first := r.ask(operator, http.MethodPost, path, body, idempotency, asked).is(http.StatusCreated)
		r.waitFor("the fork dies as well", `SELECT count(*) = 1 FROM recourse.runs WHERE parent_id = $1 AND state = 'dead_lettered'`, letter)
		r.interrupt()
		again := r.ask(operator, http.MethodPost, path, body, idempotency, asked).is(http.StatusCreated)
		if again["run_id"] != first["run_id"] || again["parent_run_id"] != letter || again["case_id"] != first["case_id"] {
			t.Errorf("%s: %v, then %v", asked, first, again)
		}
		if n := r.count(`SELECT count(*) FROM recourse.runs WHERE case_id = $1`, first["case_id"]); n != 2 {
			t.Errorf("%s: %d runs", asked, n)
		}
		r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+letter+"/fork", body, idempotency, asked+" by another").refused(http.StatusConflict, "not_open", "")
	}
	plans := map[string]string{"/api/v1/bulk": `{"action":"fork","all":true,"reason":"mended"}`, "/api/v1/cases/free": `{"all":true,"reason":"never paid","reference":"court-7"}`}
	for path, plan := range plans {
		before := r.count(`SELECT count(*) FROM recourse.bulks`)
		first := r.ask(operator, http.MethodPost, path, plan, idempotency, path).is(http.StatusCreated)
		r.interrupt()
		if again := r.ask(operator, http.MethodPost, path, plan, idempotency, path).is(http.StatusCreated); again["id"] != first["id"] || first["id"] == nil || r.count(`SELECT count(*) FROM recourse.bulks`) != before+1 {
			t.Errorf("%s: %v, then %v", path, first, again)
		}
	}
	before := r.count(`SELECT count(*) FROM recourse.bulks`)
	path := "/api/v1/dead-letters/" + r.letter("acme", 3, `"refused"`) + "/reconcile"
	first := r.ask(operator, http.MethodPost, path, executed, idempotency, path).is(http.StatusAccepted)
	r.interrupt()
	if again := r.ask(operator, http.MethodPost, path, executed, idempotency, path).is(http.StatusAccepted); again["plan_id"] != first["plan_id"] || first["plan_id"] == nil || r.count(`SELECT count(*) FROM recourse.bulks`) != before+1 {
		t.Errorf("%s: %v, then %v", path, first, again)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'refused'`); n > 2 {
		t.Errorf("%d refusals of one's own forks", n)
	}
}

// A request that a process left unanswered is sent again, and Postgres's answer to its beginning is lost: it
// is begun all the same, and is answered with what it made before.
func TestWhatAnInterruptedRequestMadeIsFoundThoughItsBeginningIsNotAnswered(t *testing.T) {
	t.Parallel()
	var p *testkit.LossyPostgres
	r := newRig(t, func(o *app.Options) { p, o.DatabaseURL = testkit.NewLossyPostgres(t, o.DatabaseURL) }).work()
	operator := r.key("acme", access.Operator)
	letter := r.letter("acme", 1, `"refused","refused","refused"`)
	path := "/api/v1/dead-letters/" + letter + "/retry"
	const body, key = `{"reason":"mended"}`, "the-key-of-the-retry"
	first := r.ask(operator, http.MethodPost, path, body, idempotency, key).is(http.StatusCreated)
	r.waitFor("the fork dies as well", `SELECT count(*) = 1 FROM recourse.runs WHERE parent_id = $1 AND state = 'dead_lettered'`, letter)
	r.interrupt()
	p.LoseAnswerTo(key, false)
	again := r.ask(operator, http.MethodPost, path, body, idempotency, key).is(http.StatusCreated)
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE case_id = $1`, first["case_id"]); p.Lost() != 1 || n != 2 || again["run_id"] != first["run_id"] {
		t.Errorf("%d answers lost, %d runs: %v, then %v", p.Lost(), n, first, again)
	}
}

// interrupt leaves answered requests as a process does that died before it stored the answers, longer ago than
// a request may take.
func (r *rig) interrupt() {
	r.t.Helper()
	if _, err := r.db.Exec(`UPDATE recourse.requests SET began = began - interval '3 minutes', status = NULL, headers = '', body = NULL`); err != nil {
		r.t.Fatal(err)
	}
}
