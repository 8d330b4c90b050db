package webhooks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

// The events of a tenant are sent to its URL, signed. The receiver checks the signature with the webhook's secret.
func ExampleWebhooks() {
	keys, err := webhooks.ParseKeys("a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=") // of 32 secret bytes: it encrypts the secrets of webhooks
	if err != nil {
		panic(err)
	}
	svc, stop := rig.Example(func(c *postadjudication.Config) {
		c.Webhooks = webhooks.Config{Keys: keys, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}} // besides public addresses
	})
	defer stop()
	ctx := context.Background()

	type request struct {
		header http.Header
		body   []byte
	}
	received := make(chan request, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			received <- request{r.Header, body} // and 200: the event is accepted
		}
	}))
	defer receiver.Close()

	hooks := svc.As("acme", "user:ada").Webhooks
	hook, secret, err := hooks.Create(ctx, webhooks.New{URL: receiver.URL, Types: []events.Type{events.RunCompleted}, Reason: "for the ledger"})
	fmt.Println(hook.State, err)
	trial, err := hooks.Test(ctx, hook.ID)
	fmt.Println(trial.Delivered, err)
	<-received

	if _, err := svc.Submit(ctx, rig.Release(1)); err != nil {
		panic(err)
	}
	got := <-received
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(err)
	}
	fmt.Println(got.header.Get("Content-Type"), verifier.Verify(got.body, got.header))

	hook, _, err = hooks.Rotate(ctx, hook.ID, "", 0, "each quarter") // for a day requests are signed with both secrets
	fmt.Println(!hook.FormerSecretUntil.IsZero(), err)
	hook, err = hooks.Pause(ctx, hook.ID, "the ledger is migrated")
	fmt.Println(hook.State, err)
	hook, err = hooks.Replay(ctx, hook.ID, 0, "the new ledger needs all of them")
	fmt.Println(hook.Position, err)
	hook, err = hooks.Resume(ctx, hook.ID, "the ledger is back")
	fmt.Println(hook.State, err)
	again := <-received
	fmt.Println(again.header.Get("Webhook-Id") == got.header.Get("Webhook-Id"))

	hook, err = hooks.Get(ctx, hook.ID)
	fmt.Println(hook.Reason, err)
	all, err := hooks.List(ctx)
	fmt.Println(len(all), err)
	hook, err = hooks.Delete(ctx, hook.ID, "the ledger reads events itself")
	fmt.Println(hook.State, err)
	// Output:
	// active <nil>
	// true <nil>
	// application/cloudevents+json; charset=utf-8 <nil>
	// true <nil>
	// paused <nil>
	// 0 <nil>
	// active <nil>
	// true
	// the ledger is back <nil>
	// 1 <nil>
	// deleted <nil>
}
