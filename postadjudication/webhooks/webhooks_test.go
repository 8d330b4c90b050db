package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

func TestBadWebhooksAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	negative, beyond := webhooks.Position(-1), webhooks.Position(1000)
	for what, c := range map[string]struct {
		change func(*webhooks.New)
		field  string
	}{
		"no URL":              {func(n *webhooks.New) { n.URL = "" }, "url"},
		"a long URL":          {func(n *webhooks.New) { n.URL = "https://example.com/" + strings.Repeat("a", 2048) }, "url"},
		"no scheme":           {func(n *webhooks.New) { n.URL = "example.com/hook" }, "url"},
		"another scheme":      {func(n *webhooks.New) { n.URL = "ftp://example.com" }, "url"},
		"a file":              {func(n *webhooks.New) { n.URL = "file:///etc/passwd" }, "url"},
		"no host":             {func(n *webhooks.New) { n.URL = "https:///hook" }, "url"},
		"an opaque URL":       {func(n *webhooks.New) { n.URL = "https:example.com" }, "url"},
		"a user":              {func(n *webhooks.New) { n.URL = "https://ada:x@example.com/" }, "url"},
		"a fragment":          {func(n *webhooks.New) { n.URL = "https://example.com/#a" }, "url"},
		"a space":             {func(n *webhooks.New) { n.URL = "https://example.com/a b" }, "url"},
		"a line break":        {func(n *webhooks.New) { n.URL = "https://example.com/\r\nx: y" }, "url"},
		"a NUL":               {func(n *webhooks.New) { n.URL = "https://example.com/\x00" }, "url"},
		"a letter not ASCII":  {func(n *webhooks.New) { n.URL = "https://exämple.com/" }, "url"},
		"a secret":            {func(n *webhooks.New) { n.URL = "https://example.com/?token=dGhpc2lzYXNlY3JldDEyMzQ1" }, "url"},
		"a private address":   {func(n *webhooks.New) { n.URL = "https://10.0.0.1/" }, "url"},
		"a mapped address":    {func(n *webhooks.New) { n.URL = "https://[::ffff:169.254.169.254]/" }, "url"},
		"http to the public":  {func(n *webhooks.New) { n.URL = "http://1.1.1.1/" }, "url"},
		"an unknown type":     {func(n *webhooks.New) { n.Types = []events.Type{"run.exploded"} }, "types"},
		"a type twice":        {func(n *webhooks.New) { n.Types = []events.Type{events.RunCreated, events.RunCreated} }, "types"},
		"a control character": {func(n *webhooks.New) { n.Description = "a\x00b" }, "description"},
		"a secret to read":    {func(n *webhooks.New) { n.Description = "password=hunter2hunter2" }, "description"},
		"a short secret":      {func(n *webhooks.New) { n.Secret = "whsec_AAAA" }, "secret"},
		"a negative position": {func(n *webhooks.New) { n.After = &negative }, "after"},
		"a position to come":  {func(n *webhooks.New) { n.After = &beyond }, "after"},
		"no reason":           {func(n *webhooks.New) { n.Reason = " " }, "reason"},
	} {
		n := webhooks.New{URL: "https://example.com/hook", Reason: "for the ledger"}
		c.change(&n)
		_, secret, err := f.Create(context.Background(), n)
		var field *refusal.FieldError
		if !errors.As(err, &field) || field.Field != c.field || secret != "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := f.List(context.Background()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if n := f.CountReceipts(rig.Receipts{Subtype: receipts.WebhookChanged}); n != 0 {
		t.Errorf("%d receipts", n)
	}
}

func TestAWebhookIsItsTenantsOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.create(newReceiver(t, nil))
	bank, ctx := f.As("bank", "user:eve").Webhooks, context.Background()
	for what, err := range map[string]error{
		"get":    second(bank.Get(ctx, w.ID)),
		"pause":  second(bank.Pause(ctx, w.ID, "why")),
		"resume": second(bank.Resume(ctx, w.ID, "why")),
		"replay": second(bank.Replay(ctx, w.ID, 0, "why")),
		"delete": second(bank.Delete(ctx, w.ID, "why")),
		"test":   second(bank.Test(ctx, w.ID)),
		"rotate": func() error { _, _, err := bank.Rotate(ctx, w.ID, "", 0, "why"); return err }(),
		"absent": second(f.Get(ctx, uuid.New())),
	} {
		if !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := bank.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if got := f.get(w); got.ChangedBy != "user:ada" || got.State != webhooks.Active {
		t.Errorf("%+v", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAPersonPausesReplaysAndDeletes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	r := newReceiver(t, nil)
	w := f.create(r, func(n *webhooks.New) { n.Description = "the ledger" })
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	f.waitAll(r)
	if _, err := f.Pause(ctx, w.ID, "the ledger moves"); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Pause(ctx, w.ID, "again"); err != nil || got.Reason != "the ledger moves" {
		t.Errorf("a second pause: %+v, %v", got, err)
	}
	f.Wait("nothing is sent any more", func() bool { return f.Health().Stats().Webhooks.Sending == 0 })
	arrived := len(r.events())
	f.MustSubmit(rig.Release(2))
	f.WaitSettled(2)
	if n := len(r.events()); n != arrived {
		t.Errorf("%d events arrived while it was paused", n-arrived)
	}
	if _, err := f.Resume(ctx, w.ID, "it has moved"); err != nil {
		t.Fatal(err)
	}
	f.waitAll(r)
	all := len(f.log())
	if _, err := f.Replay(ctx, w.ID, 0, "the ledger lost its disk"); err != nil {
		t.Fatal(err)
	}
	f.Wait("all has arrived a second time", func() bool { return len(r.events()) >= 2*all })
	if n := len(r.ids()); n != len(f.log()) {
		t.Errorf("%d different events, the log has %d", n, len(f.log()))
	}
	if _, err := f.Replay(ctx, w.ID, 1<<40, "beyond"); second(0, err) == nil {
		t.Error("a position beyond the newest is taken")
	}
	if got, err := f.Delete(ctx, w.ID, "no longer used"); err != nil || got.State != webhooks.Deleted {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := second(f.Resume(ctx, w.ID, "why")); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("a deleted webhook is resumed: %v", err)
	}
	if n := f.Count(`SELECT count(*) FROM recourse.webhooks WHERE secret IS NOT NULL OR former_secret IS NOT NULL`); n != 0 {
		t.Error("a deleted webhook has a secret")
	}
	f.Wait("its delivery has ended", func() bool { return f.Health().Stats().Webhooks.Sending == 0 })
	f.MustAudit()
}

// While a secret rotates, requests are signed with both. Nothing fails, and neither secret is
// stored or told again.
func TestASecretRotatesWithoutALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	old, both := newReceiver(t, nil), newReceiver(t, nil)
	w := f.create(old)
	given := "whsec_" + key("g")
	v, secret, err := f.Create(ctx, webhooks.New{URL: both.URL, After: new(webhooks.Position), Secret: given, Reason: "for the ledger"})
	if err != nil || secret != given {
		t.Fatalf("%q, %v", secret, err)
	}
	both.trusts(given)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	_, next, err := f.Rotate(ctx, w.ID, "", time.Hour, "a year old")
	if err != nil {
		t.Fatal(err)
	}
	rotated, last, err := f.Rotate(ctx, v.ID, "", -1, "it leaked")
	if err != nil || !rotated.FormerSecretUntil.IsZero() {
		t.Fatalf("%+v, %v", rotated, err)
	}
	both.trusts(last)
	if got := f.get(w); got.FormerSecretUntil.IsZero() {
		t.Errorf("%+v", got)
	}
	for n := range 20 {
		f.MustSubmit(rig.Release(10 + n))
	}
	f.WaitSettled(21)
	f.waitAll(old) // it knows the old secret only
	f.waitAll(both)
	f.Wait("the sender follows", func() bool {
		both.mu.Lock()
		both.secrets = []string{last} // the leaked one signs nothing any more
		both.mu.Unlock()
		got, err := f.Test(ctx, v.ID)
		return err == nil && got.Delivered
	})
	checkNowhere(t, f, next, last, given)
}

// checkNowhere checks that no table has a secret.
func checkNowhere(t *testing.T, f *fixture, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		var tables, found int
		err := f.DB.QueryRow(`SELECT count(*), count(*) FILTER (WHERE position($1 in query_to_xml(format('SELECT t::text FROM recourse.%I t', table_name), false, false, '')::text) > 0)
			FROM information_schema.tables WHERE table_schema = 'recourse' AND table_type = 'BASE TABLE'`, strings.TrimPrefix(secret, "whsec_")).Scan(&tables, &found)
		if err != nil || tables < 20 || found != 0 {
			t.Errorf("%d of %d tables have a secret, %v", found, tables, err)
		}
	}
}

func TestTestSendsOneEventAndRecordsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	r := newReceiver(t, nil)
	w := f.create(r)
	if _, err := f.Pause(ctx, w.ID, "first a test"); err != nil {
		t.Fatal(err)
	}
	got, err := f.Test(ctx, w.ID)
	if err != nil || !got.Delivered || got.Failure != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if e := r.events(); len(e) != 1 || e[0].ID() != got.Event || e[0].Type() != "dev.recourse.webhook.test" {
		t.Errorf("%v", e)
	}
	r.set(func(event.Event) int { return http.StatusTeapot })
	if got, err = f.Test(ctx, w.ID); err != nil || got.Delivered || got.Failure != "the receiver answered 418" {
		t.Errorf("%+v, %v", got, err)
	}
	r.Close()
	poll.Until(t, "a new connection is refused", func() bool { // one that was open ends first
		if got, err = f.Test(ctx, w.ID); err != nil || got.Delivered || got.Failure == "" || strings.Contains(got.Failure, "http://") {
			t.Fatalf("%+v, %v", got, err)
		}
		return strings.Contains(got.Failure, "connection refused")
	})
	if seen := f.get(w); seen.Delivered != 0 || seen.Failures != 0 || seen.Position != 0 {
		t.Errorf("%+v", seen)
	}
}

// Without a key webhooks can be listed, paused and deleted, and nothing else.
func TestWithoutAKeyThereAreNoWebhooks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	r := newReceiver(t, nil)
	w := f.create(r)
	keyless := f.other(func(c *postadjudication.Config) { c.Webhooks.Keys = webhooks.Keys{} })
	keyless.StartWorkers()
	if _, _, err := keyless.Create(ctx, webhooks.New{URL: r.URL, Reason: "why"}); !errors.Is(err, webhooks.ErrNoKey) {
		t.Errorf("create: %v", err)
	}
	if _, _, err := keyless.Rotate(ctx, w.ID, "", 0, "why"); !errors.Is(err, webhooks.ErrNoKey) {
		t.Errorf("rotate: %v", err)
	}
	if _, err := keyless.Test(ctx, w.ID); !errors.Is(err, webhooks.ErrNoKey) {
		t.Errorf("test: %v", err)
	}
	keyless.MustSubmit(rig.Release(1))
	keyless.WaitSettled(1)
	if got, err := keyless.Pause(ctx, w.ID, "why"); err != nil || got.State != webhooks.Paused {
		t.Errorf("%+v, %v", got, err)
	}
	// Once a process with the key has sent a later event elsewhere, the one without had its time.
	keyed, later := f.other(), newReceiver(t, nil)
	v := f.create(later)
	keyed.StartWorkers()
	keyed.MustSubmit(rig.Release(2))
	keyed.WaitSettled(2)
	keyed.waitAll(later)
	keyed.StopWorkers()
	if r.tried() != 0 {
		t.Error("a process without a key sends, or a paused webhook is sent to")
	}
	if _, err := keyless.Delete(ctx, v.ID, "why"); err != nil {
		t.Fatal(err)
	}
	// A process with another key can't read the secret. It says so, and loses nothing.
	stranger := f.other(func(c *postadjudication.Config) {
		keys, err := webhooks.ParseKeys(key("x"))
		if err != nil {
			t.Error(err)
		}
		c.Webhooks.Keys = keys
	})
	stranger.StartWorkers()
	if _, err := stranger.Resume(ctx, w.ID, "why"); err != nil {
		t.Fatal(err)
	}
	f.Wait("the failure is told", func() bool { return strings.Contains(f.get(w).LastFailure, "RECOURSE_WEBHOOK_KEY") })
	if r.tried() != 0 {
		t.Error("a request was sent without a signature")
	}
	stranger.StopWorkers()
	f.StartWorkers()
	f.waitAll(r)
}

// Where the key is lost, another secret is enough to send again: the former one does not sign.
func TestASecretThatNoKeyDecryptsIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	w := f.create(r)
	stranger := f.other(func(c *postadjudication.Config) {
		keys, err := webhooks.ParseKeys(key("x"))
		if err != nil {
			t.Error(err)
		}
		c.Webhooks.Keys = keys
	})
	rotated, secret, err := stranger.Rotate(context.Background(), w.ID, "", time.Hour, "the key is lost")
	if err != nil || !rotated.FormerSecretUntil.IsZero() {
		t.Fatalf("%+v, %v", rotated, err)
	}
	r.trusts(secret)
	stranger.StartWorkers()
	stranger.MustSubmit(rig.Release(1))
	stranger.WaitSettled(1)
	stranger.waitAll(r)
}

func TestATenantHasNoMoreWebhooksThanItCan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var created, refused sync.Map
	var wg sync.WaitGroup
	for n := range webhooks.MaxWebhooks + 4 {
		wg.Go(func() {
			for {
				w, _, err := f.Create(context.Background(), webhooks.New{URL: fmt.Sprintf("https://example.com/%d", n), Reason: "for the ledger"})
				switch {
				case err == nil:
					created.Store(n, w)
					return
				case errors.Is(err, webhooks.ErrTooMany):
					refused.Store(n, true)
					return
				case !errors.Is(err, background.ErrBusy):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	all, err := f.List(context.Background())
	if err != nil || len(all) != webhooks.MaxWebhooks {
		t.Errorf("%d webhooks, %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b webhooks.Webhook) int { return a.CreatedAt.Compare(b.CreatedAt) }) {
		t.Error("the list is not by age")
	}
	if text, err := json.Marshal(all[0]); err != nil || strings.Contains(string(text), "secret\"") {
		t.Errorf("%s, %v", text, err)
	}
}
