package app

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

func TestWebhooksThatNeedAPersonAreAHint(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct {
		found   webhooks.Health
		canSend bool
		text    string // part of it; empty: nothing is said
		json    string
	}{
		"none, without a key":        {webhooks.Health{}, false, "", "null"},
		"active ones":                {webhooks.Health{Active: 2}, true, "", "null"},
		"a paused one":               {webhooks.Health{Active: 1, Paused: 1}, true, "1 webhooks are paused", `{"paused":1}`},
		"one that has just failed":   {webhooks.Health{Active: 1, FailingActive: 1, FailingSince: now.Add(-time.Hour)}, true, "", "null"},
		"one that fails for long":    {webhooks.Health{Active: 1, FailingActive: 1, FailingSince: now.Add(-time.Hour - time.Second)}, true, "not been accepted since 2026-11-23T10:59:59Z", `{"failing_since":"2026-11-23T10:59:59Z"}`},
		"active ones, without a key": {webhooks.Health{Active: 2}, false, "there are 2 active webhooks, and this process has no RECOURSE_WEBHOOK_KEY", `{"without_key":2}`},
		"paused ones, without a key": {webhooks.Health{Paused: 2}, false, "2 webhooks are paused", `{"paused":2}`},
	} {
		h := newWebhookHint(c.found, c.canSend, now)
		if text := h.text(); (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
			t.Errorf("%s: %q", what, text)
		}
		if got, err := json.Marshal(h); err != nil || string(got) != c.json {
			t.Errorf("%s: %s, %v", what, got, err)
		}
	}
}
