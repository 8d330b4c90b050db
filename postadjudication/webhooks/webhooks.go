package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/internal/webhookdelivery"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Webhooks reads and changes the webhooks of a tenant in the name of an actor. Each change is
// committed with its receipt. The process that sends follows it within about a second.
type Webhooks struct {
	s             *Manager
	tenant, actor string
}

// Manager sends the events of all tenants to their webhooks, in one process of all, and keeps the
// webhooks.
type Manager struct {
	*webhookdelivery.Sender
	config Config
	store  *webhookstore.Store
	events *eventlog.Log
	now    func() time.Time
}

// NewManager returns the manager of a store and a log. transitions counts what this process has written
// of runs: while it writes much, webhooks wait.
func NewManager(c Config, store *webhookstore.Store, events *eventlog.Log, transitions func() uint64, now func() time.Time, log *zap.Logger) *Manager {
	return &Manager{webhookdelivery.NewSender(c, store, events, transitions, now, log), c, store, events, now}
}

// As returns the webhooks of a tenant, changed in the name of actor. Reading needs no actor.
func (s *Manager) As(tenant, actor string) Webhooks { return Webhooks{s, tenant, actor} }

// Bounds of the overlap of two secrets.
const (
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 30 * 24 * time.Hour
)

// errUnchanged is the decision that nothing changes.
var errUnchanged = errors.New("webhooks: the webhook is so already")

// Create creates a webhook, which is active, and returns its secret, which is never shown again.
// Errors: *FieldError for bad input (joined, one per field), ErrNoKey, ErrTooMany. After any
// other error it is unknown whether the webhook was created: list them.
func (w Webhooks) Create(ctx context.Context, n New) (created Webhook, secret string, err error) {
	raw, secret, secretErr := webhookdelivery.NewSecret(n.Secret)
	if err := errors.Join(validate.Change(w.tenant, w.actor, n.Reason), n.validate(w.s.config.Allow), secretErr); err != nil {
		return Webhook{}, "", err
	}
	newest, err := w.s.events.NewestPosition(ctx, w.tenant)
	if err != nil {
		return Webhook{}, "", err
	}
	after := newest
	if n.After != nil {
		if after = *n.After; after > newest {
			return Webhook{}, "", beyondNewest("after", newest)
		}
	}
	at := w.s.now()
	row := webhookstore.Webhook{
		ID: casework.NewID(), Tenant: w.tenant, Version: 1, State: Active, CreatedAt: at, CreatedBy: w.actor, ChangedAt: at, ChangedBy: w.actor, Reason: validate.Clean(n.Reason, 1024),
		Position: webhookstore.Position{Version: 1, ReadTo: int64(after)},
	}
	if row.Secret, err = w.s.config.Keys.Encrypt(w.tenant, row.ID, raw); err != nil {
		return Webhook{}, "", err
	}
	if row.Definition, err = (webhookdelivery.Definition{URL: n.URL, Types: n.Types, Description: n.Description, State: Active}).Text(); err != nil {
		return Webhook{}, "", err
	}
	if err := w.s.store.Create(ctx, row, webhookdelivery.ReceiptOf(row, binding.WebhookCreate, fmt.Sprintf("made, after position %d", after))); err != nil {
		return Webhook{}, "", err
	}
	return webhookOf(row, at), secret, nil
}

func beyondNewest(field string, newest Position) error {
	return &refusal.FieldError{Field: field, Problem: fmt.Sprintf("is beyond %d, the newest position of the tenant", newest)}
}

// List lists the webhooks of the tenant that are not deleted, oldest first.
func (w Webhooks) List(ctx context.Context) ([]Webhook, error) {
	if w.tenant == "" {
		return nil, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	found, err := w.s.store.List(ctx, w.tenant)
	if err != nil {
		return nil, err
	}
	out := make([]Webhook, len(found))
	for i, f := range found {
		out[i] = webhookOf(f, w.s.now())
	}
	return out, nil
}

// Get returns a webhook of the tenant. ErrNotFound if there is none, or it is deleted.
func (w Webhooks) Get(ctx context.Context, id uuid.UUID) (Webhook, error) {
	found, err := w.s.store.Find(ctx, w.tenant, id)
	if err != nil {
		return Webhook{}, err
	}
	return webhookOf(found, w.s.now()), nil
}

// Pause stops sending to a webhook: within about a second no request begins, and one that has begun
// may take 15 seconds. What
// happens from then on is sent after Resume. A webhook that is paused stays as it is. Errors:
// ErrNotFound; *FieldError for bad input. After any other error the outcome is unknown: get the
// webhook.
func (w Webhooks) Pause(ctx context.Context, id uuid.UUID, reason string) (Webhook, error) {
	return w.change(ctx, id, reason, func(now webhookstore.Webhook, reason string) (webhookstore.Change, error) {
		if now.State == Paused {
			return webhookstore.Change{}, errUnchanged
		}
		return webhookdelivery.ChangeState(now, Paused, w.cause(events.WebhookPause, reason))
	})
}

// Resume continues a paused webhook where it stopped. For an active one that fails it tries again at
// once; its three days begin anew. Errors as Pause.
func (w Webhooks) Resume(ctx context.Context, id uuid.UUID, reason string) (Webhook, error) {
	return w.change(ctx, id, reason, func(now webhookstore.Webhook, reason string) (webhookstore.Change, error) {
		if now.State == Active && now.Position.Failures == 0 && now.Position.FailingSince.IsZero() {
			return webhookstore.Change{}, errUnchanged
		}
		c, err := webhookdelivery.ChangeState(now, Active, w.cause(binding.WebhookResume, reason))
		c.Resumed = true
		return c, err
	})
}

// Replay continues a webhook after a position: an earlier one sends events again, with their ids; a
// later one skips those between, also those that wait. Errors as Pause; *FieldError if the
// position is beyond the tenant's newest one.
func (w Webhooks) Replay(ctx context.Context, id uuid.UUID, after Position, reason string) (Webhook, error) {
	newest, err := w.s.events.NewestPosition(ctx, w.tenant)
	switch {
	case err != nil:
		return Webhook{}, err
	case after < 0:
		return Webhook{}, &refusal.FieldError{Field: "after", Problem: "is negative"}
	case after > newest:
		return Webhook{}, beyondNewest("after", newest)
	}
	return w.change(ctx, id, reason, func(now webhookstore.Webhook, reason string) (webhookstore.Change, error) {
		d, err := webhookdelivery.ParseDefinition(now)
		if err != nil {
			return webhookstore.Change{}, err
		}
		seen := webhookOf(now, now.ChangedAt)
		c, err := webhookdelivery.ChangeTo(now, d, w.cause(binding.WebhookReplay, reason), fmt.Sprintf("position %d to %d", seen.Position, after))
		to := int64(after)
		c.ReadTo = &to
		return c, err
	})
}

// Rotate gives a webhook another secret and returns it; it is never shown again. Requests are
// signed with both secrets for the overlap, DefaultOverlap if it is 0, MaxOverlap at most; a
// negative one means none. A former secret that no key decrypts ends at once. secret may be given as
// in New. Errors as Create; ErrNotFound.
func (w Webhooks) Rotate(ctx context.Context, id uuid.UUID, secret string, overlap time.Duration, reason string) (Webhook, string, error) {
	raw, secret, err := webhookdelivery.NewSecret(secret)
	if overlap == 0 {
		overlap = DefaultOverlap
	}
	if overlap > MaxOverlap {
		err = errors.Join(err, &refusal.FieldError{Field: "overlap", Problem: fmt.Sprintf("is longer than %d days", MaxOverlap/(24*time.Hour))})
	}
	if err != nil {
		return Webhook{}, "", err
	}
	encrypted, err := w.s.config.Keys.Encrypt(w.tenant, id, raw)
	if err != nil {
		return Webhook{}, "", err
	}
	changed, err := w.change(ctx, id, reason, func(now webhookstore.Webhook, reason string) (webhookstore.Change, error) {
		d, err := webhookdelivery.ParseDefinition(now)
		if err != nil {
			return webhookstore.Change{}, err
		}
		next := now
		next.Secret, next.FormerSecret, next.FormerUntil = encrypted, nil, time.Time{}
		// One that no key decrypts can't sign: requests would fail for the whole overlap.
		if _, err := w.s.config.Keys.Decrypt(w.tenant, id, now.Secret); err == nil && overlap > 0 {
			next.FormerSecret, next.FormerUntil = now.Secret, w.s.now().Add(overlap)
		}
		return webhookdelivery.ChangeTo(next, d, w.cause(binding.WebhookRotate, reason), binding.SecretRotation(next.FormerUntil))
	})
	if err != nil {
		return Webhook{}, "", err
	}
	return changed, secret, nil
}

// Delete deletes a webhook for good, with its secrets. Errors as Pause.
func (w Webhooks) Delete(ctx context.Context, id uuid.UUID, reason string) (Webhook, error) {
	return w.change(ctx, id, reason, func(now webhookstore.Webhook, reason string) (webhookstore.Change, error) {
		now.Secret, now.FormerSecret, now.FormerUntil = nil, nil, time.Time{}
		return webhookdelivery.ChangeState(now, Deleted, w.cause(binding.WebhookDelete, reason))
	})
}

// cause returns who changes a webhook now, and why.
func (w Webhooks) cause(action, reason string) webhookdelivery.Cause {
	return webhookdelivery.Cause{Actor: w.actor, Action: action, Reason: reason, At: w.s.now()}
}

// change changes a webhook as decide says, and returns it. After errUnchanged it returns it as it is.
func (w Webhooks) change(ctx context.Context, id uuid.UUID, reason string, decide func(now webhookstore.Webhook, reason string) (webhookstore.Change, error)) (Webhook, error) {
	if err := validate.Change(w.tenant, w.actor, reason); err != nil {
		return Webhook{}, err
	}
	reason = validate.Clean(reason, 1024)
	now, err := w.s.store.Update(ctx, w.tenant, id, func(now webhookstore.Webhook) (webhookstore.Change, error) { return decide(now, reason) })
	if err != nil && !errors.Is(err, errUnchanged) {
		return Webhook{}, err
	}
	return webhookOf(now, w.s.now()), nil
}

// Trial is the result of Test.
type Trial = webhookdelivery.Trial

// Test sends one event of type dev.recourse.webhook.test to a webhook, also to a paused one, and
// waits for the answer. It has no position and is not tried again, and nothing is recorded. Errors:
// ErrNotFound, ErrNoKey. That it was not delivered is no error.
func (w Webhooks) Test(ctx context.Context, id uuid.UUID) (Trial, error) {
	if w.s.config.Keys.Empty() {
		return Trial{}, ErrNoKey
	}
	found, err := w.s.store.Find(ctx, w.tenant, id)
	if err != nil {
		return Trial{}, err
	}
	return w.s.SendTest(ctx, found)
}

// Health counts the webhooks of all tenants that need a person.
type Health = webhookstore.Health

// Health returns the counts of now.
func (s *Manager) Health(ctx context.Context) (Health, error) { return s.store.Health(ctx) }

// HasKeys reports whether this process has keys, without which it sends nothing.
func (s *Manager) HasKeys() bool { return !s.config.Keys.Empty() }
