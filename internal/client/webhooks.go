package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Webhooks are the requests about webhooks.
type Webhooks struct{ *connection }

func webhookPath(id uuid.UUID, verb string) string { return "/webhooks/" + id.String() + verb }

// List returns the webhooks of the tenant that are not deleted.
func (w Webhooks) List(ctx context.Context) ([]webhooks.Webhook, error) {
	var out struct {
		Webhooks []webhooks.Webhook `json:"webhooks"`
	}
	err := w.get(ctx, "/webhooks", nil, &out)
	return out.Webhooks, err
}

// Get returns a webhook.
func (w Webhooks) Get(ctx context.Context, id uuid.UUID) (out webhooks.Webhook, err error) {
	err = w.get(ctx, webhookPath(id, ""), nil, &out)
	return out, err
}

// Create creates a webhook and returns its secret. It fails if the first answer was lost and the
// secret was generated: only that answer had it.
func (w Webhooks) Create(ctx context.Context, q webhooks.New) (made webhooks.Webhook, secret string, err error) {
	var answer api.NewWebhook
	err = w.post(ctx, "/webhooks", struct {
		URL         string             `json:"url"`
		Types       []events.Type      `json:"types,omitempty"`
		Description string             `json:"description,omitempty"`
		Secret      string             `json:"secret,omitempty"`
		After       *webhooks.Position `json:"after,omitempty"`
		Reason      string             `json:"reason"`
	}{q.URL, q.Types, q.Description, q.Secret, q.After, q.Reason}, &answer)
	return secretOf(answer, q.Secret, "a webhook was created, but the answer with its secret was lost: rotate the secret of ", err)
}

// Rotate gives a webhook another secret. An overlap of 0 is the default, a negative one is none. It
// fails as Create does.
func (w Webhooks) Rotate(ctx context.Context, id uuid.UUID, secret string, overlap time.Duration, reason string) (webhooks.Webhook, string, error) {
	body := map[string]string{"reason": reason}
	if secret != "" {
		body["secret"] = secret
	}
	if overlap != 0 {
		body["overlap"] = max(overlap, 0).String()
	}
	var answer api.NewWebhook
	err := w.post(ctx, webhookPath(id, "/rotate"), body, &answer)
	return secretOf(answer, secret, "the secret was changed, but the answer with the new one was lost: rotate again the secret of ", err)
}

// secretOf returns the webhook and the secret of an answer, which has none if it repeats a lost one.
func secretOf(answer api.NewWebhook, given, lost string, err error) (webhooks.Webhook, string, error) {
	switch {
	case err != nil:
		return webhooks.Webhook{}, "", err
	case answer.Secret == "" && given == "":
		return webhooks.Webhook{}, "", errors.New(lost + answer.ID.String())
	case answer.Secret == "":
		return answer.Webhook, given, nil
	}
	return answer.Webhook, answer.Secret, nil
}

// Pause stops sending to a webhook.
func (w Webhooks) Pause(ctx context.Context, id uuid.UUID, reason string) (out webhooks.Webhook, err error) {
	err = w.post(ctx, webhookPath(id, "/pause"), reasonBody{reason}, &out)
	return out, err
}

// Resume continues a paused webhook where it stopped.
func (w Webhooks) Resume(ctx context.Context, id uuid.UUID, reason string) (out webhooks.Webhook, err error) {
	err = w.post(ctx, webhookPath(id, "/resume"), reasonBody{reason}, &out)
	return out, err
}

// Replay continues a webhook after another position.
func (w Webhooks) Replay(ctx context.Context, id uuid.UUID, after webhooks.Position, reason string) (out webhooks.Webhook, err error) {
	err = w.post(ctx, webhookPath(id, "/replay"), struct {
		reasonBody
		After webhooks.Position `json:"after"`
	}{reasonBody{reason}, after}, &out)
	return out, err
}

// Test sends one event to a webhook and reports the answer.
func (w Webhooks) Test(ctx context.Context, id uuid.UUID) (out webhooks.Trial, err error) {
	err = w.sendIdempotent(ctx, http.MethodPost, webhookPath(id, "/test"), nil, nil, &out)
	return out, err
}

// Delete deletes a webhook for good.
func (w Webhooks) Delete(ctx context.Context, id uuid.UUID, reason string) (out webhooks.Webhook, err error) {
	err = w.sendIdempotent(ctx, http.MethodDelete, webhookPath(id, ""), url.Values{"reason": {reason}}, nil, &out)
	return out, err
}
