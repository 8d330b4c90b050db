package escrowhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

func TestTheRequestGoesOutUnchangedUnderItsOperationKey(t *testing.T) {
	t.Parallel()
	c := newCall()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent := []string{r.Method, r.URL.Path, string(got), r.Header.Get("Idempotency-Key"),
			r.Header.Get("Content-Type"), r.Header.Get("Authorization")}
		want := []string{"POST", "/pay/v1/executions", string(c.Request), c.OperationKey.String(),
			"application/json", "Bearer x"}
		if d := cmp.Diff(want, sent); d != "" {
			t.Errorf("request (-want +got):\n%s", d)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		io.WriteString(w, proofBody(c, "executed", 12500, "USD"))
	}))
	defer s.Close()
	e := newExecutor(t, escrowhttp.Config{BaseURL: s.URL + "/pay/", Header: http.Header{"authorization": {"Bearer x"}}})
	want := escrow.Answer{Class: escrow.Executed, Moved: 12500, Reference: "eff_1", Code: "200"}
	if d := cmp.Diff(want, e.Execute(withLimit(t), c)); d != "" {
		t.Errorf("answer (-want +got):\n%s", d)
	}
	if at := e.Address(); at != s.URL+"/pay/v1/executions" {
		t.Errorf("its address is %s", at)
	}
}

func TestEveryStatusMeansWhatTheTableSays(t *testing.T) {
	t.Parallel()
	type row struct {
		class escrow.Class
		retry bool
		kind  string
	}
	rows := map[int]row{
		202: {"unknown", true, "http.accepted"},
		203: {"unknown", true, "http.unreadable"},
		204: {"unknown", true, "http.unreadable"},
		206: {"unknown", true, "http.unreadable"},
		301: {"unknown", true, "http.redirect"},
		302: {"unknown", true, "http.redirect"},
		304: {"unknown", true, "http.redirect"},
		307: {"unknown", true, "http.redirect"},
		308: {"unknown", true, "http.redirect"},
		400: {"not_executed", false, "http.refused"},
		401: {"not_executed", false, "http.refused"},
		404: {"not_executed", false, "http.refused"},
		408: {"unknown", true, "http.timeout"},
		409: {"unknown", true, "http.in_flight"},
		422: {"not_executed", false, "http.refused"},
		425: {"not_executed", true, "http.too_early"},
		429: {"not_executed", true, "http.rate_limited"},
		499: {"not_executed", false, "http.refused"},
		500: {"unknown", true, "http.unavailable"},
		502: {"unknown", true, "http.unavailable"},
		503: {"unknown", true, "http.unavailable"},
		599: {"unknown", true, "http.unavailable"},
		600: {"unknown", true, "http.unexpected"},
		999: {"unknown", true, "http.unexpected"},
	}
	for status, want := range rows {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			url := serveAnswer(t, status, nil, `{"code":"no"}`)
			a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), newCall())
			if got := (row{a.Class, a.Retry, a.Type}); got != want {
				t.Errorf("%d: %+v, want %+v", status, got, want)
			}
			// A body that would be a success under 200 is none, and no proof of the opposite.
			url = serveAnswer(t, status, nil, proofBody(newCall(), "already_executed", 12500, "USD"))
			if a = newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), newCall()); a.Moved != 0 || a.Class != escrow.Unknown || a.Retry != want.retry {
				t.Errorf("%d with a payment: %+v", status, a)
			}
		})
	}
}

func TestASuccessIsOnlyWhatItsBodyProves(t *testing.T) {
	t.Parallel()
	c, other := newCall(), newCall()
	other.OperationKey[0]++
	long := strings.Repeat(" ", 64<<10)
	for name, tc := range map[string]struct {
		status int
		media  string
		body   string
		moved  int64 // 0: unknown
	}{
		"executed":                    {200, "application/json", proofBody(c, "executed", 12500, "USD"), 12500},
		"created":                     {201, "application/json", proofBody(c, "executed", 12500, "USD"), 12500},
		"a +json type":                {200, "application/vnd.escrow+json", proofBody(c, "executed", 12500, "USD"), 12500},
		"a part":                      {200, "application/json", proofBody(c, "executed", 6250, "USD"), 6250},
		"more than requested":         {200, "application/json", proofBody(c, "executed", 20000, "USD"), 20000},
		"already executed":            {200, "application/json", proofBody(c, "already_executed", 12500, "USD"), 12500},
		"already executed, a part":    {200, "application/json", proofBody(c, "already_executed", 6250, "USD"), 6250},
		"already executed, too much":  {200, "application/json", proofBody(c, "already_executed", 12501, "USD"), 0},
		"other key":                   {200, "application/json", proofBody(other, "executed", 12500, "USD"), 0},
		"other currency":              {200, "application/json", proofBody(c, "executed", 12500, "EUR"), 0},
		"nothing moved":               {200, "application/json", proofBody(c, "executed", 0, "USD"), 0},
		"negative":                    {200, "application/json", proofBody(c, "executed", -1, "USD"), 0},
		"beyond exact integers":       {200, "application/json", proofBody(c, "executed", 1<<53, "USD"), 0},
		"other status":                {200, "application/json", proofBody(c, "pending", 12500, "USD"), 0},
		"not executed":                {200, "application/json", proofBody(c, "not_executed", 12500, "USD"), 0},
		"no amount":                   {200, "application/json", `{"operation_key":"` + c.OperationKey.String() + `","status":"executed"}`, 0},
		"a fraction":                  {200, "application/json", strings.Replace(proofBody(c, "executed", 12500, "USD"), "12500", "125.5", 1), 0},
		"html":                        {200, "text/html", proofBody(c, "executed", 12500, "USD"), 0},
		"bad content type":            {200, ";;", proofBody(c, "executed", 12500, "USD"), 0},
		"empty":                       {200, "application/json", "", 0},
		"null":                        {200, "application/json", "null", 0},
		"cut JSON":                    {200, "application/json", proofBody(c, "executed", 12500, "USD")[:90], 0},
		"text behind the JSON":        {200, "application/json", proofBody(c, "executed", 12500, "USD") + "{}", 0},
		"a body of more than allowed": {200, "application/json", proofBody(c, "executed", 12500, "USD") + long, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveAnswer(t, tc.status, map[string]string{"Content-Type": tc.media}, tc.body)
			a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), c)
			if tc.moved > 0 {
				if a.Class != escrow.Executed || a.Moved != tc.moved || a.Reference != "eff_1" || a.Type != "" {
					t.Errorf("%+v, want executed with %d", a, tc.moved)
				}
				return
			}
			if a.Class != escrow.Unknown || !a.Retry || a.Type != "http.unreadable" || a.Moved != 0 || a.Message == "" {
				t.Errorf("%+v, want unknown, retry, http.unreadable and a message", a)
			}
		})
	}
}

// A body that parsers may read differently proves nothing.
func TestAnAmbiguousAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	c := newCall()
	good := proofBody(c, "executed", 12500, "USD")
	absent := `{"operation_key":"` + c.OperationKey.String() + `","status":"not_executed"}`
	instead := func(text, old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%s is not in %s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	for name, tc := range map[string]struct{ body, says string }{
		"amount twice":               {instead(good, `"moved":`, `"moved":{"minor":1,"currency":"USD"},"moved":`), "moved is given twice"},
		"amount within twice":        {instead(good, `"minor":`, `"minor":1,"minor":`), "moved.minor is given twice"},
		"amount in another case":     {instead(good, `"moved":`, `"Moved":{"minor":1,"currency":"USD"},"moved":`), "Moved must be written moved"},
		"key in another case":        {instead(good, `"operation_key"`, `"OPERATION_KEY"`), "OPERATION_KEY must be written"},
		"status in another case":     {instead(good, `"status":`, `"Status":"not_executed","status":`), "Status must be written status"},
		"currency in another case":   {instead(good, `"currency"`, `"Currency"`), "moved.Currency must be written currency"},
		"status twice by an escape":  {instead(good, `"status":`, `"st\u0061tus":"not_executed","status":`), "status is given twice"},
		"half of a surrogate pair":   {instead(good, `eff_1`, `eff_\ud800`), "surrogate"},
		"not UTF-8":                  {instead(good, `eff_1`, "eff_\xff"), "not UTF-8"},
		"twice in an unknown member": {instead(good, `"status":`, `"more":{"a":1,"a":2},"status":`), "more.a is given twice"},
		"absence and success":        {instead(absent, `"status":`, `"status":"executed","status":`), "status is given twice"},
		"absence in another case":    {instead(absent, `"status"`, `"Status"`), "Status must be written status"},
	} {
		for _, status := range []int{200, 404} {
			url := serveAnswer(t, status, map[string]string{"Content-Type": "application/json"}, tc.body)
			e := newExecutor(t, escrowhttp.Config{BaseURL: url, KeyLifetime: escrow.Forever})
			answers := map[string]escrow.Answer{"lookup": e.Lookup(withLimit(t), c)}
			if status == 200 {
				answers["execution"] = e.Execute(withLimit(t), c)
			}
			for call, a := range answers {
				if a.Class != escrow.Unknown || !a.Retry || a.Type != "http.unreadable" || a.Moved != 0 || !strings.Contains(a.Message, tc.says) {
					t.Errorf("%s, %s, %d: %+v", name, call, status, a)
				}
			}
		}
	}
	more := instead(good, `"status":`, `"details":{"Status":"x","moved":1},"fee":3,"status":`)
	url := serveAnswer(t, 200, map[string]string{"Content-Type": "application/json"}, more)
	if a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), c); a.Class != escrow.Executed || a.Moved != 12500 {
		t.Errorf("unknown members: %+v", a)
	}
}

func TestARedirectIsNeverFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer to.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serveAnswer(t, status, map[string]string{"Location": to.URL}, "")
		for _, client := range []*http.Client{nil, to.Client()} {
			a := newExecutor(t, escrowhttp.Config{BaseURL: url, Client: client}).Execute(withLimit(t), newCall())
			if a.Type != "http.redirect" || a.Class != escrow.Unknown {
				t.Errorf("%d: %+v", status, a)
			}
		}
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("followed %d times", n)
	}
}

func TestNoConnectionIsProofThatNothingWasSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	nobody := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "escrow.invalid"}}
	}}}
	for name, e := range map[string]*escrowhttp.Executor{
		"refused": newExecutor(t, escrowhttp.Config{BaseURL: refused}),
		"no host": newExecutor(t, escrowhttp.Config{BaseURL: "http://escrow.invalid", Client: nobody}),
	} {
		a := e.Execute(withLimit(t), newCall())
		if a.Class != escrow.NotExecuted || !a.Retry || a.Type != "http.connection_refused" {
			t.Errorf("%s: %+v", name, a)
		}
		if strings.Contains(a.Message, "v1/executions") || a.Message == "" {
			t.Errorf("%s: message %q", name, a.Message)
		}
		// A lookup that could not be sent proves nothing about earlier calls.
		if a := e.Lookup(withLimit(t), newCall()); a.Class != escrow.Unknown || !a.Retry {
			t.Errorf("%s: lookup %+v", name, a)
		}
	}
}

// dialErrorTransport fails with a dial error, but reports no connections.
type dialErrorTransport struct{ connected bool }

func (l dialErrorTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.connected {
		tr := traceOf(r)
		tr()
	}
	return nil, &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
}

func TestADialErrorAfterAConnectionProvesNothing(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, escrowhttp.Config{BaseURL: "http://escrow.invalid", Client: &http.Client{Transport: dialErrorTransport{connected: true}}})
	if a := e.Execute(withLimit(t), newCall()); a.Class != escrow.Unknown || a.Type != "http.no_answer" {
		t.Errorf("%+v", a)
	}
}

func TestAnEndedContextIsUnknown(t *testing.T) {
	t.Parallel()
	url := serveConn(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	e := newExecutor(t, escrowhttp.Config{BaseURL: url})

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if a := e.Execute(ctx, newCall()); a.Class != escrow.Unknown || !a.Retry || a.Type != "http.timeout" {
		t.Errorf("time limit: %+v", a)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if a := e.Execute(ended, newCall()); a.Class != escrow.Unknown || !a.Retry || a.Type != "http.no_answer" {
		t.Errorf("cancelled: %+v", a)
	}
	hasty := newExecutor(t, escrowhttp.Config{BaseURL: url, Client: &http.Client{Timeout: 20 * time.Millisecond}})
	if a := hasty.Execute(withLimit(t), newCall()); a.Class != escrow.Unknown || !a.Retry || a.Type != "http.timeout" {
		t.Errorf("the client's own limit: %+v", a)
	}
}
