package escrowhttp_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// A card number anywhere in the text of a refusal is removed as a whole, also where evidence
// truncates the text.
func TestAnErrorTextIsNotCutBeforeItIsRedacted(t *testing.T) {
	t.Parallel()
	const card = "4111111111111111"
	digits := regexp.MustCompile(`[0-9]{6,}`)
	for _, form := range []string{`%s`, `{"error":"declined","detail":"%s"}`, `{"error":{"message":"%s"}}`} {
		for _, at := range []int{490, 500, 505, 511, 1020, 2040, 2047, 8000} {
			text := strings.Repeat("x ", at/2) + "card " + card + " " + strings.Repeat("y ", 500)
			kept := redact.Text(refusalText([]byte(fmt.Sprintf(form, text))))
			if found := digits.FindString(kept); found != "" || !strings.Contains(kept, "y y") {
				t.Errorf("%s at %d: %q is left of the card, in %d bytes", form, at, found, len(kept))
			}
		}
	}
}

// If the text of a refusal arrives incomplete, no digits are kept that may be the start of a
// card number.
func TestATruncatedErrorTextKeepsNoHalfOfASecret(t *testing.T) {
	t.Parallel()
	text := "declined by the issuer: 4111111111111111"
	for name, from := range map[string]string{
		"longer than MaxBody": serveAnswer(t, 422, map[string]string{"Content-Type": "text/plain"}, text),
		"broken off": serveConn(t, func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			fmt.Fprintf(c, "HTTP/1.1 422 Unprocessable\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text[:len(text)-1])
		}),
	} {
		a := newExecutor(t, escrowhttp.Config{BaseURL: from, MaxBody: int64(len(text) - 1)}).Execute(withLimit(t), newCall())
		if kept := redact.Text(a.Message); a.Class != escrow.Unknown || a.Retry || strings.Contains(kept, "4111") || !strings.Contains(kept, "declined by the issuer") {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// "This key was used with another request" says nothing of the money: that request may have been paid. It is unknown,
// and so is a refusal that may say it and can't be read whole. Other refusals are final.
func TestARefusalOfTheKeyProvesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		body   string
		table  escrowhttp.Verdict // of the status; zero: the default
		class  escrow.Class
		kind   string
	}{
		{422, `{"error":"idempotency_key_reused","detail":"idempotency key reused with another request"}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{422, `{"type":"https://developer.example.com/idempotency","title":"Idempotency-Key is already used"}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{400, `{"error":{"type":"idempotency_error","message":"Keys for IDEMPOTENT requests can only be used with the same parameters"}}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{403, `Idempotency-Key belongs to another request`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{409, `{"error":"idempotency_key_reused"}`, escrowhttp.Verdict{Class: escrow.NotExecuted}, "unknown", "http.key_reused"},
		{409, `{"error":"idempotency_key_reused"}`, escrowhttp.Verdict{}, "unknown", "http.in_flight"},
		{422, `{"error":"payee_blocked"}`, escrowhttp.Verdict{}, "not_executed", "http.refused"},
		{422, `{"operation_key":"` + newCall().OperationKey.String() + `","code":"account_closed","message":"it can't be executed"}`, escrowhttp.Verdict{}, "not_executed", "http.refused"},
		{422, `{"operation_key":"` + newCall().OperationKey.String() + `","moved":{"minor":1,"currency":"USD"}}`, escrowhttp.Verdict{}, "unknown", "http.unreadable"},
		{422, `{"code":"\u0069dempotency_key_reused"}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{422, `{"error":{"details":[{"reason":"\u0049DEMPOTENCY"}]}}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{429, `{"code":"idempotency_key_in_use"}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{425, `{"code":"idempotency_key_in_use"}`, escrowhttp.Verdict{}, "unknown", "http.key_reused"},
		{422, "\x1f\x8b\xff", escrowhttp.Verdict{}, "unknown", "http.refused"}, // compressed
		{400, ``, escrowhttp.Verdict{}, "not_executed", "http.refused"},
		{422, strings.Repeat("x", 2048), escrowhttp.Verdict{}, "unknown", "http.refused"}, // longer than MaxBody
		{403, strings.Repeat("x", 2048), escrowhttp.Verdict{}, "not_executed", "http.refused"},
	} {
		c := escrowhttp.Config{BaseURL: serveAnswer(t, tc.status, map[string]string{"Content-Type": "application/json"}, tc.body), MaxBody: 1024}
		if tc.table != (escrowhttp.Verdict{}) {
			c.Table = map[int]escrowhttp.Verdict{tc.status: tc.table}
		}
		if a := newExecutor(t, c).Execute(withLimit(t), newCall()); a.Class != tc.class || a.Type != tc.kind {
			t.Errorf("%d %.80s: %s %s, want %s %s", tc.status, tc.body, a.Class, a.Type, tc.class, tc.kind)
		}
	}
}

// The code of a refusal goes into the span of the call, which leaves the process: without what looks like a secret.
func TestNoSecretLeavesInASpan(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"4111111111111111", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "DE89370400440532013000"} {
		spans := tracetest.NewInMemoryExporter()
		ctx, root := sdk.NewTracerProvider(sdk.WithSyncer(spans)).Tracer("t").Start(withLimit(t), "root")
		newExecutor(t, escrowhttp.Config{BaseURL: serveAnswer(t, 422, nil, `{"code":"`+secret+`"}`)}).Execute(ctx, newCall())
		root.End()
		codes := 0
		for _, s := range spans.GetSpans() {
			for _, a := range s.Attributes {
				if a.Key == "recourse.code" {
					codes++
				}
				if strings.Contains(a.Value.String(), secret) {
					t.Errorf("span %s: %s = %q", s.Name, a.Key, a.Value.String())
				}
			}
		}
		if codes == 0 {
			t.Error("no span has the code")
		}
	}
}

// absenceBody is the body that states that nothing was executed under a key.
func absenceBody(k escrow.OperationKey) string {
	return `{"operation_key":"` + k.String() + `","status":"not_executed"}`
}

func TestALookupProvesOnlyWhatTheWireDefines(t *testing.T) {
	t.Parallel()
	c, other := newCall(), newCall()
	other.OperationKey[0]++
	const j = "application/json"
	for name, tc := range map[string]struct {
		status int
		media  string
		body   string
		class  escrow.Class
	}{
		"executed":                      {200, j, proofBody(c, "executed", 12500, "USD"), "executed"},
		"already executed":              {200, j, proofBody(c, "already_executed", 12500, "USD"), "executed"},
		"proven absent":                 {404, j, absenceBody(c.OperationKey), "not_executed"},
		"absent, but of another key":    {404, j, absenceBody(other.OperationKey), "unknown"},
		"absent, yet moved":             {404, j, proofBody(c, "not_executed", 5, "USD"), "unknown"},
		"a 404 that says executed":      {404, j, proofBody(c, "executed", 12500, "USD"), "unknown"},
		"a proxy's 404":                 {404, "text/html", "<h1>Not Found</h1>", "unknown"},
		"a 200 that says not executed":  {200, j, absenceBody(c.OperationKey), "unknown"},
		"a 410 that says not executed":  {410, j, absenceBody(c.OperationKey), "unknown"},
		"created is no answer to a GET": {201, j, proofBody(c, "executed", 12500, "USD"), "unknown"},
		"unavailable":                   {503, j, "", "unknown"},
		"rate limited":                  {429, j, "", "unknown"},
		"forbidden":                     {403, j, "", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveAnswer(t, tc.status, map[string]string{"Content-Type": tc.media}, tc.body)
			// Config.Table applies to executions only: it can't turn a lookup into proof.
			table := map[int]escrowhttp.Verdict{tc.status: {Class: escrow.NotExecuted}}
			a := newExecutor(t, escrowhttp.Config{BaseURL: url, Table: table, InFlight: -1}).Lookup(withLimit(t), c)
			if a.Class != tc.class || a.Retry != (tc.class != escrow.Executed) {
				t.Errorf("%+v, want %s", a, tc.class)
			}
			if (a.Moved == 12500) != (tc.class == escrow.Executed) {
				t.Errorf("moved %d", a.Moved)
			}
		})
	}
}

func TestTheExecutorStatesHowLongALookupProvesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ life, recalls, inFlight, remembers, onItsWay time.Duration }{
		{0, 0, 0, 0, escrowhttp.DefaultInFlight}, {time.Hour, 0, time.Second, time.Hour, time.Second}, {0, time.Hour, -1, time.Hour, -1},
		{escrow.Forever, time.Hour, 0, escrow.Forever, escrowhttp.DefaultInFlight},
	} {
		e := newExecutor(t, escrowhttp.Config{BaseURL: "http://127.0.0.1:1", KeyLifetime: tc.life, LookupLifetime: tc.recalls, InFlight: tc.inFlight})
		if e.KeyLifetime() != tc.life || e.LookupLifetime() != tc.remembers || e.InFlight() != tc.onItsWay {
			t.Errorf("%+v: states %s, %s and %s", tc, e.KeyLifetime(), e.LookupLifetime(), e.InFlight())
		}
	}
	if _, err := escrowhttp.New(escrowhttp.Config{BaseURL: "http://127.0.0.1:1", LookupLifetime: -1}); err == nil {
		t.Error("a negative lookup lifetime is accepted")
	}
}

func TestAnOwnTableOverridesSingleStatuses(t *testing.T) {
	t.Parallel()
	table := map[int]escrowhttp.Verdict{
		409: {Class: escrow.Executed},
		503: {Class: escrow.NotExecuted, Retry: true, Type: "http.maintenance"},
		500: {Class: escrow.NotExecuted},
	}
	run := func(status int, body string) escrow.Answer {
		url := serveAnswer(t, status, nil, body)
		return newExecutor(t, escrowhttp.Config{BaseURL: url, Table: table}).Execute(withLimit(t), newCall())
	}
	if a := run(409, proofBody(newCall(), "already_executed", 12500, "USD")); a.Class != escrow.Executed || a.Moved != 12500 {
		t.Errorf("409 with proof: %+v", a)
	}
	if a := run(409, `{"error":"in flight"}`); a.Class != escrow.Unknown || !a.Retry {
		t.Errorf("409 without proof: %+v", a)
	}
	if a := run(503, ""); a.Class != escrow.NotExecuted || !a.Retry || a.Type != "http.maintenance" {
		t.Errorf("503: %+v", a)
	}
	if a := run(500, ""); a.Class != escrow.NotExecuted || a.Retry || a.Type != "http.unavailable" {
		t.Errorf("500: %+v", a)
	}
}

func TestRetryAfterIsKeptAndBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	date := func(at time.Time) string { return at.Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		after, date string
		want        time.Duration
	}{
		"none":                  {"", "", 0},
		"seconds":               {" 7 ", "", 7 * time.Second},
		"zero":                  {"0", "", 0},
		"negative":              {"-5", "", 0},
		"a fraction":            {"1.5", "", 0},
		"nonsense":              {"soon", "", 0},
		"too long":              {"864001", "", 24 * time.Hour},
		"overflowing":           {strings.Repeat("9", 40), "", 24 * time.Hour},
		"a date, by our clock":  {date(now.Add(90 * time.Second)), "", 90 * time.Second},
		"a date, by its clock":  {date(now.Add(time.Hour)), date(now.Add(59 * time.Minute)), time.Minute},
		"a date that is past":   {date(now.Add(-time.Hour)), "", 0},
		"a date that is so far": {date(now.AddDate(5, 0, 0)), "", 24 * time.Hour},
	} {
		h := http.Header{}
		h.Set("Retry-After", tc.after)
		h.Set("Date", tc.date)
		if got := escrowhttp.RetryAfter(h, now); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	url := serveAnswer(t, 429, map[string]string{"Retry-After": "3"}, "")
	if a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), newCall()); a.RetryAfter != 3*time.Second {
		t.Errorf("429 with Retry-After: %+v", a)
	}
}

func refusalText(raw []byte) string {
	_, text := escrowhttp.RefusalOf(raw)
	return text
}

// The code and the text of a refusal are those that its body states, in the members that APIs and problem+json use; two
// causes are two texts.
func TestTheCodeAndTheMessageAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]string{
		``:                                 {"", ""},
		`{"error":"x"}`:                    {"x", "x"},
		`{"error":"x","detail":"because"}`: {"x", "x: because"},
		`{"error":"x","detail":"x"}`:       {"x", "x"},
		`{"detail":"because","title":"t"}`: {"", "t: because"},
		`{"title":"t"}`:                    {"", "t"},
		`{"error":{"message":"m"}}`:        {"", "m"},
		`{"error":{"message":"m","code":1,"type":"card_error"}}`:                                        {"1", "1: m"},
		`{"error":{"message":"m","type":"card_error"}}`:                                                 {"card_error", "card_error: m"},
		`{"error":{"code":"declined"}}`:                                                                 {"declined", "declined"},
		`{"code":"E1"}`:                                                                                 {"E1", "E1"},
		`{"code":"account_closed","message":"account 47 is closed"}`:                                    {"account_closed", "account_closed: account 47 is closed"},
		`{"code":"sanctions_hit","message":"account 47 is closed"}`:                                     {"sanctions_hit", "sanctions_hit: account 47 is closed"},
		`{"code":null,"error":"Unknown payee","message":"ask the desk"}`:                                {"", "Unknown payee: ask the desk"},
		`{"type":"about:blank","title":"Not Found","status":404}`:                                       {"", "Not Found"},
		`{"type":"https://bank.example/probs/closed","title":"Account closed","detail":"47 is"}`:        {"https://bank.example/probs/closed", "Account closed: 47 is"},
		`{"type":"https://bank.example/probs/closed"}`:                                                  {"https://bank.example/probs/closed", "https://bank.example/probs/closed"},
		`{"type":"https://bank.example/probs/closed","title":"Account closed","code":"account_closed"}`: {"account_closed", "account_closed: Account closed"},
		"\ufeff" + `{"code":"account_closed"}`:                                                          {"account_closed", "account_closed"},
		`{"reason":"x"}`:                                                                                {"", `{"reason":"x"}`},
		`[{"code":"x"}]`:                                                                                {"", `[{"code":"x"}]`},
		"plain\r\ntext\x00":                                                                             {"", "plain  text"},
		"\xff":                                                                                          {"", "\uFFFD"},
	} {
		if code, text := escrowhttp.RefusalOf([]byte(body)); code != want[0] || text != want[1] {
			t.Errorf("%q: %q and %q, want %q", body, code, text, want)
		}
	}
	for body, code := range map[string]string{`{"code":"account_closed","message":"m"}`: "account_closed", `no`: "422"} {
		url := serveAnswer(t, 422, map[string]string{"Content-Type": "application/problem+json"}, body)
		if a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), newCall()); a.Code != code || a.Class != escrow.NotExecuted {
			t.Errorf("%s: %+v", body, a)
		}
	}
	url := serveAnswer(t, 422, nil, `{"code":"account_closed","message":"`+strings.Repeat("m", 2000)+`"}`)
	if a := newExecutor(t, escrowhttp.Config{BaseURL: url, MaxBody: 100}).Execute(withLimit(t), newCall()); a.Code != "422" {
		t.Errorf("a body that was cut: %+v", a)
	}
}

// What an answer says without doubt is read, by a call as by a lookup: a whole number in another form, a number for a
// reference, and a byte order mark. What may be another sum, or none, proves nothing.
func TestAnAnswerIsReadInEveryFormThatIsUnambiguous(t *testing.T) {
	t.Parallel()
	proof := proofBody(newCall(), "executed", 12500, "USD")
	for name, tc := range map[string]struct {
		old, new  string
		moved     int64 // 0: unknown
		reference string
	}{
		"as the wire has it":     {"", "", 12500, "eff_1"},
		"a fraction of zero":     {"12500", "12500.00", 12500, "eff_1"},
		"a power of ten":         {"12500", "1.25e4", 12500, "eff_1"},
		"a negative power":       {"12500", "1250000E-2", 12500, "eff_1"},
		"a number for reference": {`"eff_1"`, "9007199254740993", 12500, "9007199254740993"},
		"no reference":           {`"eff_1"`, "null", 12500, ""},
		"a byte order mark":      {"{", "\ufeff{", 12500, "eff_1"},
		"half a cent":            {"12500", "12500.5", 0, ""},
		"next to a whole number": {"12500", "12500.00000000000000000001", 0, ""},
		"next to 1":              {"12500", "0.99999999999999999999999", 0, ""},
		"a text":                 {"12500", `"12500"`, 0, ""},
		"beyond every amount":    {"12500", "1e16", 0, ""},
		"beyond 64 bits":         {"12500", "1e30", 0, ""},
		"a power without end":    {"12500", "1e999999999", 0, ""},
		"a tiny power":           {"12500", "1e-999999999", 0, ""},
		"nothing":                {"12500", "null", 0, ""},
		"nothing moved":          {"12500", "0e5", 0, ""},
		"less than nothing":      {"12500", "-12500.0", 0, ""},
		"a list for reference":   {`"eff_1"`, "[1]", 0, ""},
		"two marks":              {"{", "\ufeff\ufeff{", 0, ""},
	} {
		body := strings.Replace(proof, tc.old, tc.new, 1)
		e := newExecutor(t, escrowhttp.Config{BaseURL: serveAnswer(t, 200, nil, body)})
		for by, a := range map[string]escrow.Answer{"call": e.Execute(withLimit(t), newCall()), "lookup": e.Lookup(withLimit(t), newCall())} {
			if want := map[bool]escrow.Class{true: escrow.Executed, false: escrow.Unknown}[tc.moved > 0]; a.Class != want || a.Moved != tc.moved || a.Reference != tc.reference {
				t.Errorf("%s, by %s: %+v", name, by, a)
			}
		}
	}
}

func TestAMessageIsValidTextOfBoundedLength(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", "é", "\U0001F4B8", "\xff", "\n"} {
		got := refusalText([]byte("x" + strings.Repeat(unit, 40_000)))
		if len(got) > 3*(escrowhttp.DefaultMaxBody+1) || !utf8.ValidString(got) {
			t.Errorf("%q: %d bytes, valid %v", unit, len(got), utf8.ValidString(got))
		}
	}
}

func TestAReferenceIsReadWhole(t *testing.T) {
	t.Parallel()
	for _, n := range []int{255, 256, 3000} {
		body := strings.Replace(proofBody(newCall(), "executed", 1, "USD"), "eff_1", strings.Repeat("r", n), 1)
		a := newExecutor(t, escrowhttp.Config{BaseURL: serveAnswer(t, 200, nil, body)}).Execute(withLimit(t), newCall())
		if a.Class != escrow.Executed || len(a.Reference) != n {
			t.Errorf("%d: %s with a reference of %d", n, a.Class, len(a.Reference))
		}
	}
}

func TestNewRefusesWhatCouldOnlyFailLater(t *testing.T) {
	t.Parallel()
	ok := escrowhttp.Config{BaseURL: "https://escrow.example"}
	for name, change := range map[string]func(*escrowhttp.Config){
		"no URL":            func(c *escrowhttp.Config) { c.BaseURL = "" },
		"no host":           func(c *escrowhttp.Config) { c.BaseURL = "http://:80" },
		"other scheme":      func(c *escrowhttp.Config) { c.BaseURL = "ftp://escrow.example" },
		"password":          func(c *escrowhttp.Config) { c.BaseURL = "https://u:hunter2@escrow.example" },
		"broken password":   func(c *escrowhttp.Config) { c.BaseURL = "https://u:hunter2@escrow.example/%zz" },
		"query":             func(c *escrowhttp.Config) { c.BaseURL += "?a=b" },
		"own key":           func(c *escrowhttp.Config) { c.Header = http.Header{"idempotency-key": {"x"}} },
		"bad header name":   func(c *escrowhttp.Config) { c.Header = http.Header{"a b": {"x"}} },
		"bad header value":  func(c *escrowhttp.Config) { c.Header = http.Header{"Authorization": {"hunter2\r\nX: y"}} },
		"negative lifetime": func(c *escrowhttp.Config) { c.KeyLifetime = -1 },
		"negative body":     func(c *escrowhttp.Config) { c.MaxBody = -1 },
		"no such status":    func(c *escrowhttp.Config) { c.Table = map[int]escrowhttp.Verdict{99: {Class: escrow.Unknown}} },
		"no such class":     func(c *escrowhttp.Config) { c.Table = map[int]escrowhttp.Verdict{409: {}} },
	} {
		c := ok
		change(&c)
		_, err := escrowhttp.New(c)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
	e, err := escrowhttp.New(escrowhttp.Config{BaseURL: "https://escrow.example", KeyLifetime: escrow.Forever})
	if err != nil || e.KeyLifetime() != escrow.Forever {
		t.Errorf("%v, lifetime %v", err, e.KeyLifetime())
	}
}

func FuzzAnAnswerIsNeverAProofWithoutOurKey(f *testing.F) {
	c := newCall()
	f.Add([]byte(proofBody(c, "executed", 12500, "USD")))
	f.Add([]byte(proofBody(c, "already_executed", 12501, "USD")))
	f.Add([]byte(`{"operation_key":"","status":"executed","moved":{"minor":1,"currency":"USD"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a := escrowhttp.AnswerTo(t.Context(), c, 1<<10, response(200, raw))
		if a.Class == escrow.Executed {
			if !strings.Contains(string(raw), c.OperationKey.String()) && !strings.Contains(string(raw), `\u`) {
				t.Errorf("executed by %q", raw)
			}
			if a.Moved < 1 || len(raw) > 1<<10 {
				t.Errorf("executed with %d by %d bytes", a.Moved, len(raw))
			}
			return
		}
		if a.Class != escrow.Unknown || !a.Retry || a.Message == "" || len(a.Message) > 3*(escrowhttp.DefaultMaxBody+1) {
			t.Errorf("%+v", a)
		}
	})
}

func TestAnErrorTextHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	if got, want := refusalText([]byte("{\"error\":\"a\u202eb\u200b\u009bc\\u001b[31m\"}")), "ab c [31m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
