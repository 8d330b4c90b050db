package webhookdelivery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
)

const (
	// ContentType is the content type of every request.
	ContentType = "application/cloudevents+json; charset=utf-8"

	// TypePrefix begins the type of a CloudEvent; the type of the public event follows.
	TypePrefix = "dev.recourse."

	// testType is the type of the event that SendTest sends.
	testType = TypePrefix + "webhook.test"
)

// render returns an event as a CloudEvent in structured mode. It is the same at every reading.
// sequence is the position with zeros ahead, so that its order as text is that of the events.
func render(e eventlog.Event) ([]byte, error) {
	out := newCloudEvent(e.ID, TypePrefix+string(e.Type), e.Tenant, e.At)
	if !e.Run.IsZero() {
		out.SetSubject(e.Run.String())
	}
	out.SetExtension("caseid", e.Case.String())
	out.SetExtension("sequence", fmt.Sprintf("%019d", int64(e.Position)))
	return encode(out, e.Data)
}

// renderTest returns the event that SendTest sends.
func renderTest(id, webhook, tenant string, at time.Time) ([]byte, error) {
	out := newCloudEvent(id, testType, tenant, at)
	return encode(out, map[string]string{"webhookId": webhook})
}

func newCloudEvent(id, typ, tenant string, at time.Time) event.Event {
	out := event.New(event.CloudEventsVersionV1)
	out.SetID(id)
	out.SetSource("/tenants/" + url.PathEscape(tenant))
	out.SetType(typ)
	out.SetTime(at)
	out.SetExtension("tenant", tenant)
	return out
}

func encode(e event.Event, data any) ([]byte, error) {
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

// signature returns the value of the header for a body that is sent at a time, signed with each
// secret.
func signature(id string, at time.Time, body []byte, secrets [][]byte) (string, error) {
	all := make([]string, len(secrets))
	for i, secret := range secrets {
		w, err := standardwebhooks.NewWebhookRaw(secret)
		if err != nil {
			return "", err
		}
		if all[i], err = w.Sign(id, at, body); err != nil {
			return "", err
		}
	}
	return strings.Join(all, " "), nil
}

// setHeaders sets the headers of a request.
func setHeaders(h http.Header, id string, at time.Time, body []byte, secrets [][]byte) error {
	signed, err := signature(id, at, body, secrets)
	if err != nil {
		return err
	}
	h.Set("Content-Type", ContentType)
	h.Set("User-Agent", "Recourse-Webhooks/1")
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, signed)
	return nil
}
