package webhookdelivery

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
)

// A webhook that a person has changed since it was sent to does not pause itself: the change may have
// mended what failed.
func TestAWebhookThatAPersonChangedDoesNotPauseItself(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	store := webhookstore.New(j)
	now := func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	s := NewSender(Config{Keys: mustKeys(t, testKey(1))}, store, eventlog.New(j), idle, now, zap.NewNop())
	at := now()
	made := webhookstore.Webhook{
		ID: uuid.Must(uuid.NewV7()), Tenant: "acme", State: webhookstore.Active, Secret: []byte("s"), CreatedAt: at, CreatedBy: "user:ada", ChangedAt: at, ChangedBy: "user:ada", Reason: "for the ledger",
		Definition: `{"url":"https://example.com/hook","types":[],"state":"active"}`,
	}
	if err := store.Create(t.Context(), made, ReceiptOf(made, "create", "made")); err != nil {
		t.Fatal(err)
	}
	read := func() webhookstore.Webhook {
		t.Helper()
		w, err := store.Find(t.Context(), "acme", made.ID)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	d := &delivery{Sender: s, queue: newQueue(0), webhook: read(), pausing: "the receiver answered 410"}
	s.sending = map[uuid.UUID]*delivery{made.ID: d}
	r := round{Sender: s}
	if _, err := store.Update(t.Context(), "acme", made.ID, func(now webhookstore.Webhook) (webhookstore.Change, error) {
		return ChangeState(now, webhookstore.Active, Cause{Actor: "user:ada", Action: "resume", Reason: "mended", At: at})
	}); err != nil {
		t.Fatal(err)
	}
	r.pauseFailing(t.Context())
	if w := read(); w.State != webhookstore.Active || w.ChangedBy != "user:ada" || s.Stats().Paused != 0 {
		t.Errorf("%+v", w)
	}
	d.update(read())
	if _, reason := d.wantsPause(); reason != "" {
		t.Errorf("after the change it wants to pause still: %s", reason)
	}
	d.pausing = "the receiver answered 410"
	r.pauseFailing(t.Context())
	if w := read(); w.State != webhookstore.Paused || w.ChangedBy != actor || w.Reason != "the receiver answered 410" || s.Stats().Paused != 1 {
		t.Errorf("%+v", w)
	}
}
