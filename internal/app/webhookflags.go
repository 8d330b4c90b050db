package app

import (
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// BindWebhooks defines the flag that opens addresses to webhooks.
func (o *Options) BindWebhooks(f *pflag.FlagSet) {
	f.StringArrayVar(&o.WebhooksAllow, "webhooks-allow", nil, "private or loopback `network` that webhooks may also be sent to, also over plain http, such as 10.0.0.0/8; repeatable")
}

// WebhookConfig returns the configuration of webhooks. Its errors are ErrOptions, and never contain a
// key.
func (o *Options) WebhookConfig() (c webhooks.Config, err error) {
	for _, text := range o.WebhooksAllow {
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().Is4In6() || network != network.Masked() {
			return c, optionError("--webhooks-allow %q is not a network such as 10.0.0.0/8, 127.0.0.1/32 or fd00::/8", text)
		}
		c.Allow = append(c.Allow, network)
	}
	if c.Keys, err = webhooks.ParseKeys(o.WebhookKey); err != nil {
		return c, optionError("%s: %s", WebhookKeyVariable, strings.TrimPrefix(err.Error(), "webhooks: "))
	}
	return c, nil
}
