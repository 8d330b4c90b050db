package webhookdelivery

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// The body is read by the published library, not by our own code.
func TestAnEventIsACloudEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 10, 0, 0, 123456000, time.UTC)
	caseID, run := receipts.CaseID{1}, receipts.RunID{2}
	body, err := render(eventlog.Event{Position: 1234, Event: events.Event{
		ID: caseID.String() + ".7.1", Type: events.RunDeadLettered, Tenant: "acme/é 1", Case: caseID, Run: run, At: at, Data: events.Data{RunID: run, Reason: `retry_exhausted: "x"`, Attempts: 3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got event.Event
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	var data events.Data
	if err := got.DataAs(&data); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"tenant": "acme/é 1", "caseid": caseID.String(), "sequence": "0000000000000001234"}
	switch {
	case got.SpecVersion() != "1.0", got.ID() != caseID.String()+".7.1", got.Type() != "dev.recourse.run.dead_lettered", got.Source() != "/tenants/acme%2F%C3%A9%201",
		got.Subject() != run.String(), !got.Time().Equal(at), got.DataContentType() != "application/json", data.Attempts != 3, data.RunID != run:
		t.Errorf("%s", got)
	}
	for name, value := range want {
		if got.Extensions()[name] != value {
			t.Errorf("extension %s is %v", name, got.Extensions()[name])
		}
	}
	again, err := render(eventlog.Event{Position: 1234, Event: events.Event{
		ID: caseID.String() + ".7.1", Type: events.RunDeadLettered, Tenant: "acme/é 1", Case: caseID, Run: run, At: at, Data: data,
	}})
	if err != nil || string(again) != string(body) {
		t.Errorf("rendered again: %s, %v", again, err)
	}
}

// Every type of event has a valid CloudEvent, also an event of no run.
func TestEveryTypeIsAValidCloudEvent(t *testing.T) {
	t.Parallel()
	for _, typ := range events.Types() {
		if _, err := render(eventlog.Event{Position: 8, Event: events.Event{ID: "c.1.0", Type: typ, Tenant: "acme", Case: receipts.CaseID{1}, At: time.Unix(0, 0)}}); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if _, err := renderTest("e", "w", "acme", time.Unix(0, 0)); err != nil {
		t.Error(err)
	}
}

// The signature is verified by the published library, with each of two secrets.
func TestRequestsAreSignedWithEachSecret(t *testing.T) {
	t.Parallel()
	old, now, other := []byte(strings.Repeat("o", 24)), []byte(strings.Repeat("n", 24)), []byte(strings.Repeat("x", 24))
	body := []byte(`{"a":"é"}`)
	headers := http.Header{}
	if err := setHeaders(headers, "c.7.1", time.Now(), body, [][]byte{now, old}); err != nil {
		t.Fatal(err)
	}
	verify := func(secret []byte, body string) error {
		w, err := standardwebhooks.NewWebhook(secretPrefix + base64.StdEncoding.EncodeToString(secret))
		if err != nil {
			t.Fatal(err)
		}
		return w.Verify([]byte(body), headers)
	}
	if err := verify(now, string(body)); err != nil {
		t.Error(err)
	}
	if err := verify(old, string(body)); err != nil {
		t.Error(err)
	}
	if verify(other, string(body)) == nil {
		t.Error("a secret that signed nothing verifies it")
	}
	if verify(now, string(body)+" ") == nil {
		t.Error("another body verifies")
	}
	if headers.Get("content-type") != ContentType || headers.Get("webhook-id") != "c.7.1" {
		t.Errorf("%v", headers)
	}
	headers.Set("webhook-id", "c.7.2")
	if verify(now, string(body)) == nil {
		t.Error("another id verifies")
	}
}
