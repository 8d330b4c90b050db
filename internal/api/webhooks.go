package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

// webhookAPI has the operations of webhooks.
type webhookAPI struct{ *API }

type webhooksOutput struct {
	Body struct {
		Webhooks []webhooks.Webhook `json:"webhooks"`
	}
}

type webhookInput struct {
	Webhook string `path:"webhook" format:"uuid"`
}

// webhookTestInput has a body so that one with members is refused.
type webhookTestInput struct {
	Webhook string    `path:"webhook" format:"uuid"`
	Body    *struct{} `doc:"Empty, or left out"`
}

type newWebhookInput struct {
	Body struct {
		URL         string             `json:"url" minLength:"1" maxLength:"2048" doc:"Where requests go: https, without a user, a fragment and secrets. http, and private addresses, only where serve --webhooks-allow opens them" example:"https://example.com/hooks"`
		Types       []events.Type      `json:"types,omitempty" maxItems:"100" doc:"The types of events to send, as the API's events have them; absent or empty: every type"`
		Description string             `json:"description,omitempty" minLength:"1" maxLength:"256" doc:"For people"`
		Secret      string             `json:"secret,omitempty" minLength:"1" maxLength:"128" doc:"whsec_ and 24 to 64 random bytes as base64; absent: one is generated"`
		After       *webhooks.Position `json:"after,omitempty" minimum:"0" doc:"The first event sent is the first after this position; absent: the first from now on"`
		Reason      string             `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type webhookChangeInput struct {
	Webhook string `path:"webhook" format:"uuid"`
	Body    struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type webhookRotationInput struct {
	Webhook string `path:"webhook" format:"uuid"`
	Body    struct {
		Secret  string `json:"secret,omitempty" minLength:"1" maxLength:"128" doc:"whsec_ and 24 to 64 random bytes as base64; absent: one is generated"`
		Overlap string `json:"overlap,omitempty" minLength:"2" maxLength:"32" doc:"For how long requests are also signed with the former secret: such as 90m, 36h or 7d, at most 30d; 0s: not at all. Absent: 24h" example:"24h"`
		Reason  string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type webhookReplayInput struct {
	Webhook string `path:"webhook" format:"uuid"`
	Body    struct {
		After  webhooks.Position `json:"after" minimum:"0" doc:"The next event sent is the first after this position"`
		Reason string            `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type webhookRemovalInput struct {
	Webhook string `path:"webhook" format:"uuid"`
	Reason  string `query:"reason" required:"true" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
}

// NewWebhook is a webhook with its secret, which is shown only once.
type NewWebhook struct {
	Secret string `json:"secret,omitempty" doc:"Signs the requests. Shown only once; a repeated answer has none" example:"whsec_..."`
	webhooks.Webhook
}

type newWebhookOutput struct{ Body NewWebhook }

type webhookOutput struct{ Body webhooks.Webhook }

type webhookTrialOutput struct{ Body webhooks.Trial }

func (a webhookAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-webhooks", method: http.MethodGet, path: "/webhooks", action: access.Webhooks, summary: "List the tenant's webhooks", description: "Oldest first, without those that are deleted.",
	}, a.list)
	register(a.API, h, operation{
		id: "create-webhook", method: http.MethodPost, path: "/webhooks", action: access.Webhooks, status: http.StatusCreated, secret: "secret", summary: "Send the tenant's events to a URL",
		description: "Every event is a POST of a CloudEvent (structured JSON), signed as Standard Webhooks has it, and is sent at least once, with the same webhook-id at every try. The answer shows the secret, once. 409 too_many_webhooks if the tenant has the maximum number; 503 no_webhook_key if this process has no key that encrypts secrets.",
	}, a.create)
	register(a.API, h, operation{
		id: "get-webhook", method: http.MethodGet, path: "/webhooks/{webhook}", action: access.Webhooks, summary: "Get a webhook, and how far it is",
	}, a.get)
	for _, change := range []struct {
		word, summary, description string
		do                         func(webhooks.Webhooks, context.Context, uuid.UUID, string) (webhooks.Webhook, error)
	}{
		{"pause", "Stop sending to a webhook", "Within about a second no request begins; one that has begun may take 15 seconds. Nothing is skipped: what happens meanwhile is sent after resume-webhook.", webhooks.Webhooks.Pause},
		{"resume", "Continue a paused webhook where it stopped", "An active webhook that fails tries again at once.", webhooks.Webhooks.Resume},
	} {
		register(a.API, h, operation{
			id: change.word + "-webhook", method: http.MethodPost, path: "/webhooks/{webhook}/" + change.word, action: access.Webhooks, summary: change.summary, description: change.description,
		}, func(ctx context.Context, c door.Caller, in *webhookChangeInput) (*webhookOutput, error) {
			return webhookResult(in.Webhook, func(id uuid.UUID) (webhooks.Webhook, error) { return change.do(a.as(c), ctx, id, in.Body.Reason) })
		})
	}
	register(a.API, h, operation{
		id: "rotate-webhook", method: http.MethodPost, path: "/webhooks/{webhook}/rotate", action: access.Webhooks, secret: "secret", summary: "Give a webhook another secret",
		description: "The answer shows the secret, once. Until the overlap ends every request has two signatures, of the new secret and of the former one. 503 no_webhook_key if this process has no key that encrypts secrets.",
	}, a.rotate)
	register(a.API, h, operation{
		id: "replay-webhook", method: http.MethodPost, path: "/webhooks/{webhook}/replay", action: access.Webhooks, summary: "Continue a webhook after another position",
		description: "After an earlier position events are sent again, with the same ids. After a later one those between are skipped, also those that wait.",
	}, a.replay)
	register(a.API, h, operation{
		id: "test-webhook", method: http.MethodPost, path: "/webhooks/{webhook}/test", action: access.Webhooks, repeatable: true, summary: "Send one event of the type dev.recourse.webhook.test, and report the answer",
		description: "Also to a paused webhook. It waits 15 seconds at most, tries once, and records nothing. It counts as an open stream. 503 no_webhook_key if this process has no key that decrypts secrets.",
	}, a.test)
	register(a.API, h, operation{
		id: "delete-webhook", method: http.MethodDelete, path: "/webhooks/{webhook}", action: access.Webhooks, summary: "Delete a webhook and its secrets for good",
		description: "What it has not sent is not sent. Deleting it again is 404.",
	}, a.delete)
}

// as returns the webhooks of the caller's tenant, changed in the caller's name.
func (a webhookAPI) as(c door.Caller) webhooks.Webhooks {
	return a.service.As(c.Tenant, c.Principal).Webhooks
}

func (a webhookAPI) list(ctx context.Context, c door.Caller, _ *noInput) (*webhooksOutput, error) {
	found, err := a.as(c).List(ctx)
	out := &webhooksOutput{}
	out.Body.Webhooks = append([]webhooks.Webhook{}, found...)
	return out, err
}

func (a webhookAPI) create(ctx context.Context, c door.Caller, in *newWebhookInput) (*newWebhookOutput, error) {
	created, secret, err := a.as(c).Create(ctx, webhooks.New{
		URL: in.Body.URL, Types: in.Body.Types, Description: in.Body.Description, Secret: in.Body.Secret, After: in.Body.After, Reason: in.Body.Reason,
	})
	return &newWebhookOutput{NewWebhook{secret, created}}, webhookProblem(err)
}

func (a webhookAPI) get(ctx context.Context, c door.Caller, in *webhookInput) (*webhookOutput, error) {
	return webhookResult(in.Webhook, func(id uuid.UUID) (webhooks.Webhook, error) { return a.as(c).Get(ctx, id) })
}

func (a webhookAPI) rotate(ctx context.Context, c door.Caller, in *webhookRotationInput) (*newWebhookOutput, error) {
	id, err := parseWebhookID(in.Webhook)
	if err != nil {
		return nil, err
	}
	overlap, err := parseOverlap(in.Body.Overlap)
	if err != nil {
		return nil, err
	}
	changed, secret, err := a.as(c).Rotate(ctx, id, in.Body.Secret, overlap, in.Body.Reason)
	return &newWebhookOutput{NewWebhook{secret, changed}}, webhookProblem(err)
}

// parseOverlap returns the overlap for webhooks.Rotate, where 0 means the default.
func parseOverlap(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	overlap, err := deadletter.ParseDuration(text)
	switch {
	case err != nil:
		return 0, &refusal.FieldError{Field: "overlap", Problem: "is not a length of time such as 90m, 36h or 7d"}
	case overlap == 0:
		return -1, nil
	}
	return time.Duration(overlap), nil
}

func (a webhookAPI) replay(ctx context.Context, c door.Caller, in *webhookReplayInput) (*webhookOutput, error) {
	return webhookResult(in.Webhook, func(id uuid.UUID) (webhooks.Webhook, error) {
		return a.as(c).Replay(ctx, id, in.Body.After, in.Body.Reason)
	})
}

func (a webhookAPI) test(ctx context.Context, c door.Caller, in *webhookTestInput) (*webhookTrialOutput, error) {
	id, err := parseWebhookID(in.Webhook)
	if err != nil {
		return nil, err
	}
	release, err := a.door.AcquireStream(c) // it waits for a receiver, as a long poll waits for events
	if err != nil {
		return nil, err
	}
	defer release()
	trial, err := a.as(c).Test(ctx, id)
	return &webhookTrialOutput{trial}, webhookProblem(err)
}

func (a webhookAPI) delete(ctx context.Context, c door.Caller, in *webhookRemovalInput) (*webhookOutput, error) {
	return webhookResult(in.Webhook, func(id uuid.UUID) (webhooks.Webhook, error) { return a.as(c).Delete(ctx, id, in.Reason) })
}

// webhookResult returns what do returns for the webhook that a path names.
func webhookResult(text string, do func(uuid.UUID) (webhooks.Webhook, error)) (*webhookOutput, error) {
	id, err := parseWebhookID(text)
	if err != nil {
		return nil, err
	}
	found, err := do(id)
	return &webhookOutput{found}, webhookProblem(err)
}

func parseWebhookID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "a webhook is named by its id").WithField("webhook", "is no UUID")
	}
	return id, nil
}

// webhookProblem returns the problems that only webhooks have.
func webhookProblem(err error) error {
	switch {
	case errors.Is(err, webhooks.ErrTooMany):
		return door.NewRefusal(http.StatusConflict, "too_many_webhooks", "the tenant has the maximum number of webhooks, %d", webhooks.MaxWebhooks)
	case errors.Is(err, webhooks.ErrNoKey):
		return door.NewRefusal(http.StatusServiceUnavailable, "no_webhook_key", "this process has no key that encrypts the secrets of webhooks")
	}
	return err
}
