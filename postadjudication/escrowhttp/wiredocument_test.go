package escrowhttp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/settlement"
)

var rewrite = flag.Bool("rewrite", false, "rewrite escrow.openapi.json")

const wireDocument = "escrow.openapi.json"

const aboutWire = `What an escrow service offers to Recourse, which calls it. Recourse sends each request at least once under its operation key, and
pays nothing itself: the service moves money at most once for each key. Each example says what Recourse takes from the answer: executed, not_executed (it is
certain that nothing was moved by this call) or unknown, and whether it calls again. Of a service that is configured as asynchronous (serve --asynchronous) it
also takes accepted: the service has the call and ends it later, and is looked up until then. Any other 4xx to a call means what 422 means, and any other 5xx what 500
means. So a service that can't tell who asks, or is not ready to decide, answers 503. The package escrowhttp has the whole table.`

// executionRequest is the body of a call, as binding.CanonicalRequest writes it.
type executionRequest struct {
	AdjudicationID       string             `json:"adjudication_id" doc:"The decision that is carried out"`
	Amount               wireMoney          `json:"amount" doc:"What is to be moved, at most"`
	EscrowReference      string             `json:"escrow_reference" doc:"The escrow that the amount is taken from"`
	Generation           int                `json:"generation" minimum:"1" doc:"The decision's number for its transaction receipt; a higher one replaces a lower one"`
	Held                 wireMoney          `json:"held" doc:"What the escrow holds by the decision"`
	Outcome              settlement.Outcome `json:"outcome" enum:"release,refund" doc:"Whether the amount goes to the payee, or back to the payer"`
	Payload              map[string]any     `json:"payload" doc:"What the submitter adds; Recourse does not read it"`
	SubmissionReceiptID  string             `json:"submission_receipt_id"`
	Tenant               string             `json:"tenant"`
	TransactionReceiptID string             `json:"transaction_receipt_id"`
}

type wireMoney struct {
	Currency string `json:"currency" minLength:"3" maxLength:"3" doc:"ISO 4217"`
	Minor    int64  `json:"minor" minimum:"1" maximum:"9007199254740991" doc:"In minor units, such as cents"`
}

type executionAnswer struct {
	_ struct{} `additionalProperties:"true"`

	OperationKey string    `json:"operation_key" pattern:"^[0-9a-f]{64}$" doc:"That of the request"`
	Status       string    `json:"status" enum:"executed,already_executed" doc:"already_executed to a repeated key"`
	Moved        wireMoney `json:"moved" doc:"The total moved under the key. Less and more than was asked are recorded; but one of more than 8796093022207 minor units that is also more than was asked is taken for a mistake: the outcome is unknown, and a person is asked"`
	Reference    string    `json:"reference,omitempty" doc:"The service's id of the execution. Of one that is longer than 255 bytes of UTF-8 the SHA-256 is kept. What looks like the number of a card or an account, such as 16 digits that pass for a card, is kept as [card] or [iban]: give such an id a prefix of letters and no digits that pass"`
}

type absenceAnswer struct {
	_ struct{} `additionalProperties:"true"`

	OperationKey string `json:"operation_key" pattern:"^[0-9a-f]{64}$" doc:"That of the request"`
	Status       string `json:"status" enum:"not_executed" doc:"The key moved nothing, and no call that the service has received will"`
}

type acceptedAnswer struct {
	_ struct{} `additionalProperties:"true"`

	OperationKey string `json:"operation_key" pattern:"^[0-9a-f]{64}$" doc:"That of the request"`
	Status       string `json:"status" enum:"accepted,pending,processing" doc:"The service has the call, and has not ended it"`
}

type refusalAnswer struct {
	_ struct{} `additionalProperties:"true"`

	Code    string `json:"code" doc:"A stable word for the cause; dead letters are grouped by it"`
	Message string `json:"message,omitempty" doc:"For people"`
}

// wireExample is an answer that a service may give.
type wireExample struct {
	status  int
	name    string
	header  map[string]string
	body    any    // nil: none
	meaning string // what Recourse takes from it; the test compares

	asynchronous bool // of a service that is configured as asynchronous
}

func wireExamples(c escrow.Call) (calls, lookups []wireExample) {
	paid := func(status string, minor int64) executionAnswer {
		return executionAnswer{OperationKey: c.OperationKey.String(), Status: status, Moved: wireMoney{"EUR", minor}, Reference: "pay_81"}
	}
	accepted := acceptedAnswer{OperationKey: c.OperationKey.String(), Status: "accepted"}
	calls = []wireExample{
		{200, "executed", nil, paid("executed", 12500), "executed", false},
		{200, "a part", nil, paid("executed", 10000), "executed", false},
		{200, "a repeated key", nil, paid("already_executed", 12500), "executed", false},
		{201, "executed", nil, paid("executed", 12500), "executed", false},
		{202, "accepted", nil, nil, "unknown, and calls again", false},
		{202, "accepted", map[string]string{"Retry-After": "2"}, accepted, "accepted, if the service is configured as asynchronous, and asks what became of it", true},
		{400, "refused", nil, refusalAnswer{Code: "amount_invalid", Message: "the amount has half a cent"}, "not_executed, and does not call again", false},
		{401, "a wrong authorization", nil, refusalAnswer{Code: "unauthorized", Message: "the token has expired"}, "not_executed, and does not call again", false},
		{403, "not allowed", nil, refusalAnswer{Code: "forbidden", Message: "this client moves no money"}, "not_executed, and does not call again", false},
		{404, "no such account", nil, refusalAnswer{Code: "no_account", Message: "there is no account 47"}, "not_executed, and does not call again", false},
		{408, "timed out", nil, nil, "unknown, and calls again", false},
		{409, "in progress", nil, refusalAnswer{Code: "in_progress", Message: "the first call under this key is not over"}, "unknown, and calls again", false},
		{422, "refused", nil, refusalAnswer{Code: "account_closed", Message: "account 47 is closed"}, "not_executed, and does not call again", false},
		{422, "too late, or outdated", nil, refusalAnswer{Code: "too_late", Message: "Recourse-Not-After is over"}, "not_executed, and does not call again", false},
		{422, "the key had another request", nil, refusalAnswer{Code: "idempotency_key_reused", Message: "the key was used with another request"}, "unknown, and does not call again", false},
		{429, "too many calls", map[string]string{"Retry-After": "2"}, refusalAnswer{Code: "rate_limited", Message: "10 a second"}, "not_executed, and calls again", false},
		{500, "a fault", nil, nil, "unknown, and calls again", false},
		{503, "unavailable", map[string]string{"Retry-After": "2"}, nil, "unknown, and calls again", false},
	}
	lookups = []wireExample{
		{202, "not ended", nil, accepted, "accepted, if the service is configured as asynchronous, and asks what became of it", true},
		{200, "executed", nil, paid("executed", 12500), "executed", false},
		{401, "a wrong authorization", nil, refusalAnswer{Code: "unauthorized", Message: "the token has expired"}, "unknown, and calls again", false},
		{404, "not executed", nil, absenceAnswer{OperationKey: c.OperationKey.String(), Status: "not_executed"}, "not_executed, and calls again", false},
		{503, "unavailable", nil, nil, "unknown, and calls again", false},
	}
	return calls, lookups
}

func wireCall(t *testing.T) escrow.Call {
	t.Helper()
	c := newCall()
	amount := settlement.Money{Minor: 12500, Currency: "EUR"}
	request, err := binding.Request(settlement.Instruction{
		Tenant: "northwind", TransactionReceiptID: "txr_1", SubmissionReceiptID: "sub_1", AdjudicationID: "adj_1", EscrowReference: "esc_1",
		Outcome: settlement.Release, Generation: 2, Amount: amount, Held: settlement.Money{Minor: 30000, Currency: "EUR"},
	}, json.RawMessage(`{"iban_reference":"ref_9"}`))
	if err != nil {
		t.Fatal(err)
	}
	c.Request, c.Amount, c.Generation, c.NotAfter = request, amount, 2, time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	return c
}

func meaningOf(a escrow.Answer) string {
	switch {
	case a.Class == escrow.Executed:
		return string(a.Class)
	case a.Accepted:
		return "accepted, if the service is configured as asynchronous, and asks what became of it"
	case a.Retry:
		return string(a.Class) + ", and calls again"
	}
	return string(a.Class) + ", and does not call again"
}

// The document of the wire is what the code sends and understands: its request and headers are those of a call that was
// made, and each of its answers was given to one, and means what the document says.
func TestTheDocumentOfTheWireIsWhatTheCodeSendsAndUnderstands(t *testing.T) {
	t.Parallel()
	c := wireCall(t)
	schemas := huma.NewMapRegistry("#/components/schemas/", func(r reflect.Type, _ string) string { return schemaNames[r] })
	document := &huma.OpenAPI{
		OpenAPI: "3.1.0", Info: &huma.Info{Title: "Escrow service of Recourse", Version: "1", Description: aboutWire},
		Components: &huma.Components{Schemas: schemas},
	}
	calls, lookups := wireExamples(c)
	execution := &huma.Operation{
		OperationID: "execute", Summary: "Move the amount, once for each operation key",
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(reflect.TypeFor[executionRequest](), true, ""), Example: json.RawMessage(c.Request)},
		}},
		Responses: describeAnswers(t, schemas, calls, func(e *escrowhttp.Executor) escrow.Answer { return e.Execute(withLimit(t), c) }),
	}
	lookup := &huma.Operation{
		OperationID: "lookup", Summary: "Say what became of an operation key",
		Description: "Recourse asks while it does not know an outcome. The service answers 404 only for a key that it would still recognise.",
		Responses:   describeAnswers(t, schemas, lookups, func(e *escrowhttp.Executor) escrow.Answer { return e.Lookup(withLimit(t), c) }),
	}
	path := describeRequests(t, c, execution, lookup)
	document.Paths = map[string]*huma.PathItem{"/v1/executions": {Post: execution}, path: {Get: lookup}}

	var sent executionRequest
	if err := json.Unmarshal(c.Request, &sent); err != nil {
		t.Fatal(err)
	}
	if same, err := binding.CanonicalPayload(mustMarshal(t, sent)); err != nil || !bytes.Equal(same, c.Request) {
		t.Errorf("the described request is %s, %v; sent is %s", same, err, c.Request)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, mustMarshal(t, document), "", " "); err != nil {
		t.Fatal(err)
	}
	indented.WriteByte('\n')
	if *rewrite {
		if err := os.WriteFile(wireDocument, indented.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := os.ReadFile(wireDocument); err != nil || !bytes.Equal(committed, indented.Bytes()) {
		t.Errorf("%s is not what the code does, %v\nif the change is intended: go test ./postadjudication/escrowhttp -run %s -rewrite", wireDocument, err, t.Name())
	}
}

var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[executionRequest](): "Execution", reflect.TypeFor[wireMoney](): "Money", reflect.TypeFor[executionAnswer](): "Executed",
	reflect.TypeFor[absenceAnswer](): "NotExecuted", reflect.TypeFor[refusalAnswer](): "Refusal", reflect.TypeFor[acceptedAnswer](): "Accepted",
}

// describeAnswers gives each answer to a call, and describes it with what Recourse takes from it.
func describeAnswers(t *testing.T, schemas huma.Registry, examples []wireExample, ask func(*escrowhttp.Executor) escrow.Answer) map[string]*huma.Response {
	t.Helper()
	out := map[string]*huma.Response{}
	for _, e := range examples {
		var body []byte
		if e.body != nil {
			body = mustMarshal(t, e.body)
		}
		config := escrowhttp.Config{BaseURL: serveAnswer(t, e.status, e.header, string(body)), KeyLifetime: 48 * time.Hour}
		if e.asynchronous {
			config.Asynchronous = 24 * time.Hour
		}
		got := ask(newExecutor(t, config))
		if meaningOf(got) != e.meaning {
			t.Errorf("%d %s: Recourse takes from it %s, not %s: %+v", e.status, e.name, meaningOf(got), e.meaning, got)
		}
		status := strconv.Itoa(e.status)
		if out[status] == nil {
			out[status] = &huma.Response{Description: http.StatusText(e.status), Headers: map[string]*huma.Param{}}
		}
		r := out[status]
		for name, value := range e.header {
			r.Headers[name] = &huma.Param{Description: "How long Recourse waits before it calls or asks again", Schema: &huma.Schema{Type: "string"}, Example: value}
		}
		if e.body == nil {
			r.Description += fmt.Sprintf(": Recourse takes it for %s", e.meaning)
			continue
		}
		if r.Content == nil {
			r.Content = map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(reflect.TypeOf(e.body), true, ""), Examples: map[string]*huma.Example{}}}
		}
		r.Content["application/json"].Examples[e.name] = &huma.Example{Summary: fmt.Sprintf("Recourse takes it for %s", e.meaning), Value: e.body}
	}
	return out
}

// describeRequests makes a call and a lookup, describes their headers, and returns the path of the lookup.
func describeRequests(t *testing.T, c escrow.Call, execution, lookup *huma.Operation) (lookupPath string) {
	t.Helper()
	about := map[string]string{
		"Idempotency-Key":     "The operation key: the same for each call of a decision, another one for each other decision",
		"Recourse-Generation": "That of the body; the service refuses (422) one that is lower than it has executed or refused for the transaction receipt",
		"Recourse-Not-After":  "A time of RFC 3339, in UTC and with three decimals of the second. The service refuses (422) a call that it starts to process later: nobody waits for the answer",
	}
	ofTransport := []string{"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent"}
	requests := make(chan *http.Request, 2)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		requests <- r
	}))
	defer s.Close()
	e := newExecutor(t, escrowhttp.Config{BaseURL: s.URL})
	e.Execute(withLimit(t), c)
	made := <-requests
	for _, name := range slices.Sorted(maps.Keys(made.Header)) {
		switch {
		case slices.Contains(ofTransport, name):
		case about[name] == "":
			t.Errorf("a call has the header %s, which the document does not describe", name)
		default:
			execution.Parameters = append(execution.Parameters, &huma.Param{
				Name: name, In: "header", Required: true, Description: about[name], Schema: &huma.Schema{Type: "string"}, Example: made.Header.Get(name),
			})
			delete(about, name)
		}
	}
	if len(about) > 0 || made.Method != http.MethodPost || made.URL.Path != "/v1/executions" {
		t.Errorf("a call is %s %s, without %v", made.Method, made.URL.Path, about)
	}
	e.Lookup(withLimit(t), c)
	if made = <-requests; made.Method != http.MethodGet || made.URL.Path != "/v1/executions/"+c.OperationKey.String() {
		t.Errorf("a lookup is %s %s", made.Method, made.URL.Path)
	}
	lookup.Parameters = []*huma.Param{{Name: "operation_key", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Example: c.OperationKey.String()}}
	return "/v1/executions/{operation_key}"
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
