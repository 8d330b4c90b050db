package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// webhookHint is what a person should know of the webhooks of all tenants.
type webhookHint struct {
	Paused       int       `json:"paused,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"` // of the longest failing one, if that is long
	WithoutKey   int       `json:"without_key,omitempty"`  // active webhooks, in a process that can't send
}

// webhookHint returns what is to be said of webhooks now; nil also if they could not be read.
func (m *Main) webhookHint(ctx context.Context) *webhookHint {
	found, err := m.Service.Health().Webhooks(ctx)
	if err != nil {
		m.Log.Warn("the webhooks could not be read", zap.Error(err))
		return nil
	}
	return newWebhookHint(found, m.Service.Health().CanSendWebhooks(), time.Now())
}

// newWebhookHint returns what is to be said of webhooks; nil: nothing.
func newWebhookHint(found webhooks.Health, canSend bool, now time.Time) *webhookHint {
	h := webhookHint{Paused: found.Paused}
	if found.FailsForLong(now) {
		h.FailingSince = found.FailingSince
	}
	if !canSend {
		h.WithoutKey = found.Active
	}
	if h == (webhookHint{}) {
		return nil
	}
	return &h
}

// text returns the hint as lines for people.
func (h *webhookHint) text() string {
	if h == nil {
		return ""
	}
	var out strings.Builder
	if h.Paused > 0 {
		fmt.Fprintf(&out, "%d webhooks are paused, by a person or by themselves: nothing is sent to them until they are resumed\n", h.Paused)
	}
	if !h.FailingSince.IsZero() {
		fmt.Fprintf(&out, "an event of a webhook has not been accepted since %s: after three days the webhook pauses itself\n", h.FailingSince.UTC().Format(time.RFC3339))
	}
	if h.WithoutKey > 0 {
		fmt.Fprintf(&out, "there are %d active webhooks, and this process has no RECOURSE_WEBHOOK_KEY: it sends nothing to them\n", h.WithoutKey)
	}
	return out.String()
}
