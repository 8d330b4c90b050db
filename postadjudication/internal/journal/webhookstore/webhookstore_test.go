package webhookstore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/receipts"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// fixture is a store on a real database with one active webhook at position 10.
type fixture struct {
	*webhookstore.Store
	db *sql.DB // as the owner
	id uuid.UUID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	url := testkit.Migrated(t)
	f := &fixture{Store: webhookstore.New(journaltest.Open(t, url)), db: testkit.OpenAsOwner(t, url), id: uuid.New()}
	at := time.Now().UTC().Truncate(time.Microsecond)
	w := webhookstore.Webhook{ID: f.id, Tenant: "acme", State: webhookstore.Active, Definition: "{}", Secret: []byte("x"), CreatedAt: at, CreatedBy: "user:ada", Reason: "why"}
	w.Position.ReadTo = 10
	if err := f.Create(t.Context(), w, f.draft("create")); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) draft(action string) receipts.Draft {
	return receipts.Draft{Actor: "user:ada", At: time.Now().UTC().Truncate(time.Microsecond), Payload: receipts.Payload{Reference: f.id.String(), Webhook: "{}", AskedFor: action, Reason: "why"}}
}

// position returns where the webhook is.
func (f *fixture) position(t *testing.T) webhookstore.Position {
	t.Helper()
	w, err := f.Find(t.Context(), "acme", f.id)
	if err != nil {
		t.Fatal(err)
	}
	return w.Position
}

// setTo sets the position, as a person does.
func (f *fixture) setTo(t *testing.T, readTo int64) {
	t.Helper()
	if _, err := f.Update(t.Context(), "acme", f.id, func(now webhookstore.Webhook) (webhookstore.Change, error) {
		return webhookstore.Change{Next: now, Draft: f.draft("replay"), ReadTo: &readTo}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// lock takes the lock of the sender and returns the webhook as the sender reads it.
func lock(t *testing.T, s *webhookstore.Sender) webhookstore.Webhook {
	t.Helper()
	active, holds, err := s.Active(t.Context())
	if err != nil || !holds || len(active) != 1 {
		t.Fatalf("%t, %d webhooks, %v", holds, len(active), err)
	}
	t.Cleanup(func() {
		if err := s.Release(context.Background()); err != nil {
			t.Log(err) // the test may have ended the connection
		}
	})
	return active[0]
}

// reached returns the progress to a position, with one event that is pending.
func reached(w webhookstore.Webhook, readTo int64) []webhookstore.Progress {
	p := w.Position
	p.ReadTo, p.Pending, p.Delivered = readTo, []int64{readTo - 1}, 3
	return []webhookstore.Progress{{ID: w.ID, Position: p}}
}

// What the sender reached from a position that a person has set since is not written.
func TestAPositionThatAPersonHasSetStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.Sender()
	w := lock(t, s)
	if err := s.Save(t.Context(), reached(w, 20)); err != nil {
		t.Fatal(err)
	}
	if p := f.position(t); p.ReadTo != 20 || !slices.Equal(p.Pending, []int64{19}) || p.Delivered != 3 {
		t.Errorf("%+v", p)
	}
	f.setTo(t, 5)
	if err := s.Save(t.Context(), reached(w, 30)); err != nil {
		t.Fatal(err)
	}
	if p := f.position(t); p.ReadTo != 5 || len(p.Pending) != 0 || p.Version != 2 {
		t.Errorf("the position that a person set was overwritten: %+v", p)
	}
	if err := s.Save(t.Context(), reached(lock(t, s), 40)); err != nil {
		t.Fatal(err)
	}
	if p := f.position(t); p.ReadTo != 40 {
		t.Errorf("%+v", p)
	}
}

// A sender whose connection was lost writes nothing, though it does not know: another one holds the
// lock, and is further.
func TestASenderThatLostItsLockWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	former, next := f.Sender(), f.Sender()
	w := lock(t, former)
	if _, holds, err := next.Active(t.Context()); holds || err != nil {
		t.Fatalf("two hold the lock: %v", err)
	}
	if err := next.Save(t.Context(), reached(w, 20)); !errors.Is(err, webhookstore.ErrNotHeld) {
		t.Errorf("it writes without the lock: %v", err)
	}
	if _, err := f.db.Exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1919119987 AND objid = 5 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
		t.Fatal(err)
	}
	if err := next.Save(t.Context(), reached(lock(t, next), 30)); err != nil {
		t.Fatal(err)
	}
	if err := former.Save(t.Context(), reached(w, 20)); err == nil {
		t.Error("it writes though its connection is lost")
	}
	if p := f.position(t); p.ReadTo != 30 {
		t.Errorf("%+v", p)
	}
}

// A deleted webhook is found by nobody, and has no secret.
func TestADeletedWebhookIsFoundByNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	toDeleted := func(secret []byte) error {
		_, err := f.Update(t.Context(), "acme", f.id, func(now webhookstore.Webhook) (webhookstore.Change, error) {
			now.State, now.Secret = webhookstore.Deleted, secret
			return webhookstore.Change{Next: now, Draft: f.draft("delete")}, nil
		})
		return err
	}
	if err := toDeleted([]byte("x")); err == nil {
		t.Fatal("it is deleted with its secret")
	}
	if err := toDeleted(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Find(t.Context(), "acme", f.id); !errors.Is(err, background.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if all, err := f.List(t.Context(), "acme"); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := toDeleted(nil); !errors.Is(err, background.ErrNotFound) {
		t.Errorf("%v", err)
	}
	active, holds, err := f.Sender().Active(t.Context())
	if err != nil || !holds || len(active) != 0 {
		t.Errorf("%+v, %t, %v", active, holds, err)
	}
}
