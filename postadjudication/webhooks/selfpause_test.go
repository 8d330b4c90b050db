package webhooks_test

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// A webhook that a person has changed since it was sent to does not pause itself: the change may have
// mended what failed.
func TestAWebhookThatAPersonChangedDoesNotPauseItself(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	store := webhookstore.New(j)
	now := func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	s := webhooks.NewSender(config(t), store, eventlog.New(j), func() uint64 { return 0 }, now, zap.NewNop())
	all := s.As("acme", "user:ada")
	made, _, err := all.Create(t.Context(), webhooks.New{URL: "https://example.com/hook", Reason: "for the ledger"})
	if err != nil {
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
	const reason = "the receiver answered 410"
	before := read()
	if _, _, err := all.Rotate(t.Context(), made.ID, "", 0, "it leaked"); err != nil {
		t.Fatal(err)
	}
	if err := s.PauseItself(t.Context(), before, reason); err != nil {
		t.Fatal(err)
	}
	if w := read(); w.State != webhooks.Active || w.ChangedBy != "user:ada" || s.Stats().Paused != 0 {
		t.Errorf("%+v", w)
	}
	if err := s.PauseItself(t.Context(), read(), reason); err != nil {
		t.Fatal(err)
	}
	if w := read(); w.State != webhooks.Paused || w.ChangedBy != "system:webhooks" || w.Reason != reason || s.Stats().Paused != 1 {
		t.Errorf("%+v", w)
	}
}
