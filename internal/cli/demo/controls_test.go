package demo_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/demo"
)

const darkLine = `{"transaction_receipt_id":"txr_1","submission_receipt_id":"s","adjudication_id":"a","tenant":"t","escrow_reference":"e","outcome":"release","amount":{"minor":5,"currency":"USD"},"held":{"minor":9,"currency":"USD"},"simulate":"dark"}
{"transaction_receipt_id":"txr_2","submission_receipt_id":"s","adjudication_id":"a","tenant":"t","escrow_reference":"f","outcome":"refund","amount":{"minor":4,"currency":"USD"},"held":{"minor":9,"currency":"USD"},"simulate":"lost"}
{"transaction_receipt_id":"txr_3","submission_receipt_id":"s","adjudication_id":"a","tenant":"t","escrow_reference":"g","outcome":"refund","amount":{"minor":4,"currency":"USD"},"held":{"minor":9,"currency":"USD"},"simulate":"refused"}
`

// controlClient sends requests to the pages of a demonstration.
type controlClient struct {
	t   *testing.T
	url string
}

func (v controlClient) ask(method, path, body string, status int) map[string]any {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Recourse-Tenant", "t")
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		v.t.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, raw, err)
	}
	var out map[string]any
	if strings.HasPrefix(string(raw), "{") {
		if err := json.Unmarshal(raw, &out); err != nil {
			v.t.Fatal(err)
		}
	}
	return out
}

// letters returns the runs of the open letters of a class, by transaction.
func (v controlClient) letters(class string) map[string]string {
	out := map[string]string{}
	for _, l := range v.ask("GET", "/api/v1/dead-letters?letter=open&outcome_class="+class, "", 200)["letters"].([]any) {
		letter := l.(map[string]any)
		out[letter["transaction_receipt_id"].(string)] = letter["run_id"].(string)
	}
	return out
}

func TestTheControlsRepairTheEscrowServiceAndAdvanceTheClock(t *testing.T) {
	t.Parallel()
	d := start(t, demo.Options{Input: strings.NewReader(darkLine), Listen: "127.0.0.1:0"})
	r, err := d.Run(t.Context())
	if err != nil || !r.OK() || r.DeadLettered != 3 || r.UnknownOpen < 6 { // more where the circuit breaker paused them
		t.Fatalf("%+v, %v", r, err)
	}
	v := controlClient{t, d.URL()}
	unknown, refused := v.letters("unknown"), v.letters("not_executed")
	if len(unknown) != 2 || len(refused) != 1 {
		t.Fatalf("%v %v", unknown, refused)
	}
	paid, lost := "/api/v1/dead-letters/"+unknown["txr_1"], "/api/v1/dead-letters/"+unknown["txr_2"]
	for _, bad := range []string{"", "?forward=yesterday", "?forward=-P1D", "?forward=P101Y", "?forward=PT999999999999H"} {
		v.ask("POST", "/demo/clock"+bad, "", 400)
	}
	v.ask("GET", "/demo/repair", "", 405)
	v.ask("POST", "/demo/clock?forward=P2D", "", 200) // over the lifetime of the operation keys
	if no := v.ask("POST", paid+"/fork", `{"reason":"too late"}`, 409); no["code"] != "reconcile_first" {
		t.Errorf("%v", no)
	}
	v.ask("POST", paid+"/reconcile", `{"lookup":true}`, 409)
	v.ask("POST", "/demo/repair", "", 200)
	if caseID := v.ask("POST", paid+"/reconcile", `{"lookup":true}`, 200); caseID["settlement_progression_status"] != "settled" {
		t.Errorf("%v", caseID)
	}
	if caseID := v.ask("POST", lost+"/reconcile", `{"lookup":true}`, 200); caseID["settlement_progression_status"] != "dispute-ready" || caseID["unknown_open"] != 0.0 {
		t.Errorf("%v", caseID)
	}
	v.ask("POST", "/api/v1/dead-letters/"+refused["txr_3"]+"/hold", `{"reason":"in court"}`, 200)
	if advanced := v.ask("POST", "/demo/clock?forward=P180D", "", 200); advanced["announced"] != 1.0 || advanced["pruned"] != 0.0 {
		t.Errorf("%v", advanced)
	}
	if advanced := v.ask("POST", "/demo/clock?forward=P8D", "", 200); advanced["announced"] != 0.0 || advanced["pruned"] != 1.0 {
		t.Errorf("%v", advanced)
	}
	if left := v.letters("not_executed"); len(left) != 1 || left["txr_3"] == "" {
		t.Errorf("%v are left", left)
	}
}

// A web page of another origin cannot repair the escrow service or advance the clock; nor can one
// whose name resolves to loopback.
func TestAnotherOriginDoesNotUseTheControls(t *testing.T) {
	t.Parallel()
	d := start(t, demo.Options{Input: strings.NewReader(""), Listen: "127.0.0.1:0"})
	for _, header := range [][2]string{{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Host", "evil.example"}} {
		for _, path := range []string{"/demo/repair", "/demo/clock?forward=P180D"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Set(header[0], header[1]); header[0] == "Host" {
				r.Host = header[1]
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %v: %d, %v", path, header, res.StatusCode, err)
			}
		}
	}
}
