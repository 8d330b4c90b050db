package worker

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// WebhookSecret signs what is sent to the webhooks of workers.
const WebhookSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// webhookKey encrypts the secrets of all workers.
const webhookKey = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="

// webhooksConfig lets workers send to receivers on this machine.
func webhooksConfig() (c webhooks.Config, err error) {
	c.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	c.Keys, err = webhooks.ParseKeys(webhookKey)
	return c, err
}

// webhooks creates the webhook of a tenant, or pauses or resumes it.
func (p *process) webhooks(ctx context.Context, c Command) error {
	all := p.service.As(c.Tenant, actor).Webhooks
	found, err := all.List(ctx)
	if err != nil {
		return err
	}
	if c.Do == CreateWebhook && len(found) == 0 {
		_, _, err = all.Create(ctx, webhooks.New{URL: c.URL, Secret: WebhookSecret, After: new(webhooks.Position), Reason: reason})
		return err
	}
	for _, w := range found {
		switch c.Do {
		case PauseWebhooks:
			_, err = all.Pause(ctx, w.ID, reason)
		case ResumeWebhooks:
			_, err = all.Resume(ctx, w.ID, reason)
		}
		if err != nil {
			return fmt.Errorf("worker: webhook %s: %w", w.ID, err)
		}
	}
	return nil
}
