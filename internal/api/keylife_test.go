package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestAKeyIsMadeUsedAndRevokedOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.keyOf("user:admin@acme", time.Time{}, access.Admin, access.Operator)
	made := r.ask(admin, http.MethodPost, "/api/v1/keys", `{"principal":"user:ada","roles":["operator","auditor"],"reason":"on call","expires_at":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`).is(http.StatusCreated)
	token, prefix := made["token"].(string), made["prefix"].(string)
	if made["created_by"] != "user:admin@acme" || made["tenant"] != "acme" {
		t.Errorf("%v", made)
	}
	if b := r.ask(token, http.MethodPost, "/api/v1/breakers/open", `{"reason":"test"}`).is(http.StatusOK); b["actor"] != "user:ada" {
		t.Errorf("%v", b)
	}
	r.waitFor("its use is recorded", `SELECT last_used_at IS NOT NULL FROM recourse.keys WHERE prefix = $1`, prefix)
	gone := r.ask(admin, http.MethodDelete, "/api/v1/keys/"+prefix+"?reason=left", "").is(http.StatusOK)
	if gone["revoked_by"] != "user:admin@acme" {
		t.Errorf("%v", gone)
	}
	r.ask(admin, http.MethodDelete, "/api/v1/keys/"+prefix+"?reason=again", "").is(http.StatusOK)
	begin := time.Now()
	for {
		a := r.ask(token, http.MethodGet, "/api/v1/breakers", "")
		if a.status == http.StatusUnauthorized {
			a.refused(http.StatusUnauthorized, "key_revoked", "")
			break
		}
		if a.status != http.StatusOK || time.Since(begin) > time.Minute {
			t.Fatalf("after %s: %d %s", time.Since(begin), a.status, a.text)
		}
	}
	listed := r.ask(admin, http.MethodGet, "/api/v1/keys", "")
	for _, k := range listed.is(http.StatusOK)["keys"].([]any) {
		if k := k.(map[string]any); k["prefix"] == prefix && (k["revoked_at"] == nil || k["token"] != nil || k["digest"] != nil) {
			t.Errorf("%v", k)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('key-created', 'key-revoked') AND actor = 'user:admin@acme'`); n != 2 {
		t.Errorf("%d receipts", n)
	}
}

// keyOf returns a token of acme with some roles.
func (r *rig) keyOf(principal string, until time.Time, roles ...access.Role) string {
	r.t.Helper()
	token, _, err := r.main.Service.As("acme", "test").Keys.Create(r.t.Context(), postadjudication.NewKey{
		Principal: principal, Roles: roles, ExpiresAt: until, Reason: "test",
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// Each pair of the maker's role and the new key's role: a key that allows more than its maker's
// is refused with a receipt, and not made.
func TestNobodyMakesAKeyWithMoreRightsThanTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made, refusals := 0, 0
	for _, also := range append([]access.Role{""}, access.Roles()...) {
		own := []access.Role{access.Admin}
		if also != "" && also != access.Admin {
			own = append(own, also)
		}
		token := r.keyOf("user:maker."+string(also), time.Time{}, own...)
		made++
		for _, role := range access.Roles() {
			body := `{"principal":"user:p","roles":["` + string(role) + `"],"reason":"x"}`
			if role == also || role == access.Auditor || role == access.Admin {
				r.ask(token, http.MethodPost, "/api/v1/keys", body).is(http.StatusCreated)
				made++
				continue
			}
			r.ask(token, http.MethodPost, "/api/v1/keys", body).refused(http.StatusForbidden, "beyond_reach", "roles")
			refusals++
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.keys WHERE tenant = 'acme'`); n != made {
		t.Errorf("%d keys, %d were made", n, made)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND body LIKE '%"refused_by":"beyond_reach"%' AND body LIKE '%"asked_for":"keys"%'`); n != refusals || refusals != 24 {
		t.Errorf("%d receipts of %d refusals", n, refusals)
	}
}

// No key gives another one queues that it has not: an admin would see the token, and pay with it.
func TestNobodyMakesAKeyOfQueuesThatTheirOwnLacks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := r.keyOf("user:maker", time.Time{}, access.Admin, access.Worker)
	const with = `{"principal":"service:p","roles":["worker"],"queues":["%s"],"reason":"x"}`
	for _, queue := range []string{"payouts", "*", "mail"} {
		r.ask(token, http.MethodPost, "/api/v1/keys", fmt.Sprintf(with, queue)).refused(http.StatusForbidden, "beyond_reach", "queues")
	}
	r.ask(token, http.MethodPost, "/api/v1/keys", `{"principal":"service:p","roles":["auditor"],"queues":["mail"],"reason":"x"}`).refused(http.StatusUnprocessableEntity, "invalid", "queues")
	r.ask(token, http.MethodPost, "/api/v1/keys", `{"principal":"service:p","roles":["worker"],"reason":"x"}`).is(http.StatusCreated)
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND body LIKE '%"refused_by":"beyond_reach"%'`); n != 3 {
		t.Errorf("%d receipts of 3 refusals", n)
	}
}

// A key of before a payment queue was named, which would pay and decide, has no successor.
func TestAKeyThatPaysAndDecidesHasNoSuccessor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token, k, err := r.main.Service.As("acme", "test").Keys.Create(t.Context(), postadjudication.NewKey{Principal: "user:maker", Roles: []access.Role{access.Admin, access.Worker}, Queues: []string{"payouts"}, Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.Exec(`INSERT INTO recourse.targets (family, name, breaker) VALUES ('settlement', 'queue:payouts', 'queue:payouts')`); err != nil {
		t.Fatal(err)
	}
	r.ask(token, http.MethodPost, "/api/v1/keys/"+k.Prefix+"/rotate", `{"reason":"each quarter"}`).refused(http.StatusForbidden, "duties_mixed", "")
}

func TestAKeyThatExpiresMakesNoneThatExpiresLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := time.Now().UTC().Add(time.Hour).Truncate(time.Second)
	token := r.keyOf("user:ada", end, access.Admin)
	body := func(until string) string { return `{"principal":"user:p","roles":["admin"],"reason":"x"` + until + `}` }
	if cut := r.ask(token, http.MethodPost, "/api/v1/keys", body("")).is(http.StatusCreated); cut["expires_at"] != end.Format(time.RFC3339) {
		t.Errorf("a key without a given expiry expires at %v, its maker's at %s", cut["expires_at"], end)
	}
	r.ask(token, http.MethodPost, "/api/v1/keys", body(`,"never_expires":"a locked device"`)).refused(http.StatusForbidden, "beyond_reach", "expires_at")
	r.ask(token, http.MethodPost, "/api/v1/keys", body(`,"expires_at":"2999-01-01T00:00:00Z"`)).refused(http.StatusForbidden, "beyond_reach", "expires_at")
	r.ask(token, http.MethodPost, "/api/v1/keys", body(`,"expires_at":"`+end.Format(time.RFC3339)+`"`)).is(http.StatusCreated)
}

func TestTheExpiryOfAKeyInItsLastDaysIsInAnswersLogAndMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := time.Now().UTC().Add(29 * 24 * time.Hour).Truncate(time.Second)
	ending, other := r.keyOf("user:ada", end, access.Auditor), r.keyOf("user:ben", time.Time{}, access.Auditor)
	prefix, _ := access.Prefix(ending)
	for _, asked := range [][]string{{http.MethodGet, "/api/v1/breakers"}, {http.MethodGet, "/api/v1/no-such"}, {http.MethodPost, "/api/v1/breakers/open"}, {http.MethodGet, "/asynqmon"}} {
		if a := r.ask(ending, asked[0], asked[1], ""); a.header.Get(door.KeyExpiresHeader) != end.Format(time.RFC3339) {
			t.Errorf("%v: %d %q", asked, a.status, a.header.Get(door.KeyExpiresHeader))
		}
		if a := r.ask(other, asked[0], asked[1], ""); a.header.Get(door.KeyExpiresHeader) != "" {
			t.Errorf("%v: a key that expires later: %q", asked, a.header.Get(door.KeyExpiresHeader))
		}
	}
	if a := r.ask(ending, http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "other"); a.header.Get(door.KeyExpiresHeader) == "" {
		t.Error("the refusal of a key for its tenant has no expiry header")
	}
	lines := r.logs.FilterMessageSnippet("expires soon").All()
	if len(lines) != 1 || lines[0].ContextMap()["key"] != prefix || lines[0].ContextMap()["principal"] != "user:ada" {
		t.Errorf("%v", lines)
	}
	if text := r.ask("", http.MethodGet, "/metrics", "").text; !strings.Contains(text, `recourse_access_key_expires_timestamp_seconds{key="`+prefix+`"}`) || strings.Count(text, "recourse_access_key_expires_timestamp_seconds{") != 1 {
		t.Errorf("%s", text)
	}
}

// A successor's token goes to the principal of the key only.
func TestAKeyIsRotatedOverHTTPByItsOwnPrincipal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	own, other := r.keyOf("user:Ada", time.Time{}, access.Admin, access.Operator), r.keyOf("user:kim", time.Time{}, access.Admin, access.Operator)
	old := r.keyOf("user:ada", time.Time{}, access.Operator)
	prefix, _ := access.Prefix(old)
	path := "/api/v1/keys/" + prefix + "/rotate"
	made := r.ask(own, http.MethodPost, path, `{"reason":"ends soon"}`).is(http.StatusCreated)
	if made["successor_of"] != prefix || made["principal"] != "user:ada" || made["expires_at"] == nil {
		t.Errorf("%v", made)
	}
	for _, token := range []string{old, made["token"].(string)} {
		r.ask(token, http.MethodPost, "/api/v1/breakers/open", `{"reason":"test"}`).is(http.StatusOK)
	}
	r.ask(old, http.MethodPost, path, `{"reason":"mine"}`).refused(http.StatusForbidden, "role_missing", "")
	r.ask(other, http.MethodPost, path, `{"reason":"hers"}`).refused(http.StatusForbidden, "other_principal", "")
	r.ask(r.keyOf("user:ada", time.Time{}, access.Admin), http.MethodPost, path, `{"reason":"x"}`).refused(http.StatusForbidden, "beyond_reach", "roles")
	r.ask(r.key("other", access.Admin), http.MethodPost, path, `{"reason":"x"}`).refused(http.StatusNotFound, "not_found", "")
	r.ask(own, http.MethodPost, path, `{"reason":"x","never_expires":"because"}`).refused(http.StatusForbidden, "beyond_reach", "expires_at")
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND actor = 'user:kim' AND body LIKE '%"refused_by":"other_principal"%'`); n != 1 {
		t.Errorf("%d receipts of the refusal", n)
	}
}

// Platform can't be granted over HTTP, even with a key that has it.
func TestNobodyGivesThePlatformOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.keyOf("user:kim", time.Time{}, append(access.Roles(), access.Platform)...)
	platform := r.keyOf("user:kim", time.Time{}, access.Platform)
	prefix, _ := access.Prefix(platform)
	r.ask(admin, http.MethodPost, "/api/v1/keys", `{"principal":"user:eve","roles":["platform"],"reason":"x"}`).refused(http.StatusUnprocessableEntity, "invalid", "roles[0]")
	r.ask(admin, http.MethodPost, "/api/v1/keys/"+prefix+"/rotate", `{"reason":"x"}`).refused(http.StatusForbidden, "beyond_reach", "roles")
	if n := r.count(`SELECT count(*) FROM recourse.keys WHERE 'platform' = ANY(roles)`); n != 2 {
		t.Errorf("%d keys of the platform", n)
	}
}

// The token of a key is in one answer only: a repeated one has none, and none is stored.
func TestNoAnswerWithATokenIsStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.keyOf("user:kim", time.Time{}, access.Admin, access.Operator)
	prefix, _ := access.Prefix(r.keyOf("user:kim", time.Time{}, access.Operator))
	for path, body := range map[string]string{
		"/api/v1/keys": `{"principal":"user:bob","roles":["operator"],"reason":"x"}`, "/api/v1/keys/" + prefix + "/rotate": `{"reason":"ends soon"}`,
	} {
		first := r.ask(admin, http.MethodPost, path, body, idempotency, path).is(http.StatusCreated)
		again := r.ask(admin, http.MethodPost, path, body, idempotency, path).is(http.StatusCreated)
		if first["token"] == nil || again["token"] != nil || again["prefix"] != first["prefix"] {
			t.Errorf("%s: %v, then %v", path, first["prefix"], again)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.requests WHERE convert_from(body, 'UTF8') LIKE '%rck\_%' OR convert_from(body, 'UTF8') LIKE '%"token"%'`); n != 0 {
		t.Errorf("%d stored answers have a token", n)
	}
	if n := r.count(`SELECT count(*) FROM recourse.requests WHERE status = 201`); n != 2 {
		t.Errorf("%d answers are stored", n)
	}
}

// A request begins with a valid key, and its body arrives when the key has ended: nothing is done.
func TestARevokedKeyDoesNothingByABodyThatArrivesLate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := r.keyOf("user:ada", time.Time{}, access.Admin, access.Operator, access.Submitter)
	prefix, _ := access.Prefix(token)
	late := map[string]*lateBody{}
	for path, body := range map[string]string{
		"/api/v1/breakers/open": `{"reason":"test"}`, "/api/v1/adjudications": adjudication(1, `"ok"`), "/api/v1/adjudications/batch": `{"adjudications":[` + adjudication(2, `"ok"`) + `]}`,
		"/ojs/v1/jobs": `{"type":"mail.send","args":[]}`, "/v1/runs": `{"workflowId":"settlement","inputs":` + adjudication(3, `"ok"`) + `}`,
	} {
		late[path] = r.beginBody(token, path, body)
	}
	r.ask(r.key("acme", access.Admin), http.MethodDelete, "/api/v1/keys/"+prefix+"?reason=stolen", "").is(http.StatusOK)
	poll.Until(t, "the key is refused", func() bool {
		return r.ask(token, http.MethodGet, "/api/v1/breakers", "").status == http.StatusUnauthorized
	})
	for path, request := range late {
		if status := request.end(); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, status)
		}
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.runs) + (SELECT count(*) FROM recourse.receipts WHERE actor = 'user:ada')`); n != 0 {
		t.Errorf("%d runs and receipts", n)
	}
}

// lateBody is a request of whose body the last byte is not sent yet.
type lateBody struct {
	t    *testing.T
	conn net.Conn
	last string
}

// beginBody sends a request but for the last byte of its body. The server has looked at its key when it returns.
func (r *rig) beginBody(token, path, body string) *lateBody {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.main.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	l := &lateBody{r.t, conn, body[len(body)-1:]}
	l.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, conn.RemoteAddr(), token, len(body)))
	begun, err := http.ReadResponse(bufio.NewReader(conn), nil) // the server begins to read
	if err != nil || begun.StatusCode != http.StatusContinue {
		r.t.Fatalf("%s: %v, %v", path, begun, err)
	}
	l.send(body[:len(body)-1])
	return l
}

func (l *lateBody) send(text string) {
	l.t.Helper()
	if _, err := l.conn.Write([]byte(text)); err != nil {
		l.t.Fatal(err)
	}
}

// end sends the last byte, and returns the status of the answer.
func (l *lateBody) end() int {
	l.t.Helper()
	l.send(l.last)
	answer, err := http.ReadResponse(bufio.NewReader(l.conn), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	_ = answer.Body.Close() // an answer that was read to its end has nothing to close
	return answer.StatusCode
}
