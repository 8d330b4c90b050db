package webhookstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// Log has the receipts of a tenant's webhooks.
const Log journal.OperationLog = stored.WebhookLog

// MaxWebhooks is the maximum number of webhooks of a tenant.
const MaxWebhooks = 100

// ErrTooMany means that a tenant has MaxWebhooks already.
var ErrTooMany = errors.New("journal: the tenant has as many webhooks as it can have")

// State is the state of a webhook.
type State string

// The states. Deleted is final.
const (
	Active  State = stored.WebhookActive
	Paused  State = stored.WebhookPaused
	Deleted State = stored.WebhookDeleted
)

// Webhook is a row of webhooks. FormerUntil is zero if there is no former secret.
type Webhook struct {
	ID           uuid.UUID
	Tenant       string
	Version      int64 // counts the changes
	State        State
	Definition   string // as in the last receipt
	Secret       []byte // encrypted
	FormerSecret []byte // likewise; sent beside Secret until FormerUntil
	FormerUntil  time.Time
	CreatedAt    time.Time
	CreatedBy    string
	ChangedAt    time.Time
	ChangedBy    string
	Reason       string

	Position Position
}

// Position is how far a webhook is: every event up to ReadTo was delivered or is not wanted, except
// those at the positions in Pending.
type Position struct {
	Version      int64 // rises when a person sets the position
	ReadTo       int64
	Pending      []int64
	Delivered    int64     // events, in all
	DeliveredAt  time.Time // the last one; zero: none
	Failures     int64     // failed tries since the last event was delivered
	FailingSince time.Time // when the oldest event that is not delivered failed first; zero: it did not
	LastFailure  string    // of the last try that failed
}

// Store keeps webhooks. It is safe for concurrent use.
type Store struct {
	journal *journal.Journal
}

// New returns the store of a journal.
func New(j *journal.Journal) *Store { return &Store{j} }

const webhookSQL = `SELECT w.id, w.tenant, w.version, w.state, w.definition, w.secret, w.former_secret, w.former_until, w.created_at, w.created_by, w.changed_at, w.changed_by, w.reason,
  p.version, p.read_to, p.pending, p.delivered, p.delivered_at, p.failures, p.failing_since, p.last_failure
FROM recourse.webhooks w JOIN recourse.webhook_positions p ON p.webhook_id = w.id `

func scanWebhook(row interface{ Scan(...any) error }) (w Webhook, err error) {
	var former, delivered, failing sql.NullTime
	err = row.Scan(&w.ID, &w.Tenant, &w.Version, &w.State, &w.Definition, &w.Secret, &w.FormerSecret, &former, &w.CreatedAt, &w.CreatedBy, &w.ChangedAt, &w.ChangedBy, &w.Reason,
		&w.Position.Version, &w.Position.ReadTo, pq.Array(&w.Position.Pending), &w.Position.Delivered, &delivered, &w.Position.Failures, &failing, &w.Position.LastFailure)
	w.CreatedAt, w.ChangedAt = w.CreatedAt.UTC(), w.ChangedAt.UTC()
	w.FormerUntil, w.Position.DeliveredAt, w.Position.FailingSince = utcOrZero(former), utcOrZero(delivered), utcOrZero(failing)
	return w, err
}

func utcOrZero(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }

func selectWebhooks(ctx context.Context, q stored.Querier, where string, args ...any) (out []Webhook, err error) {
	rows, err := q.QueryContext(ctx, webhookSQL+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		w, err := scanWebhook(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, rows.Err()
}

// List lists the webhooks of a tenant that are not deleted, oldest first.
func (s *Store) List(ctx context.Context, tenant string) ([]Webhook, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	out, err := selectWebhooks(ctx, s.journal.Reads(), `WHERE w.tenant = $1 AND w.state <> 'deleted' ORDER BY w.created_at, w.id`, tenant)
	return out, pg.Wrap(err)
}

// Find returns a webhook of a tenant, or ErrNotFound, also if it is deleted.
func (s *Store) Find(ctx context.Context, tenant string, id uuid.UUID) (Webhook, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	found, err := selectWebhooks(ctx, s.journal.Reads(), `WHERE w.tenant = $1 AND w.id = $2 AND w.state <> 'deleted'`, tenant, id)
	switch {
	case err != nil:
		return Webhook{}, pg.Wrap(err)
	case len(found) == 0:
		return Webhook{}, background.ErrNotFound
	}
	return found[0], nil
}

// Health counts the webhooks of all tenants that need a person.
type Health struct {
	Active        int       // webhooks to which events are sent
	Paused        int       // by a person or by themselves
	FailingSince  time.Time // the longest failing active webhook; zero: none fails
	FailingActive int       // active webhooks of which an event failed
}

// failingForLong is how long an event of a webhook fails before a person should know.
const failingForLong = time.Hour

// FailsForLong reports whether an event of an active webhook has failed for so long that a person should
// know.
func (h Health) FailsForLong(now time.Time) bool {
	return !h.FailingSince.IsZero() && now.Sub(h.FailingSince) > failingForLong
}

const healthSQL = `SELECT count(*) FILTER (WHERE w.state = 'active'), count(*) FILTER (WHERE w.state = 'paused'),
  min(p.failing_since) FILTER (WHERE w.state = 'active'), count(p.failing_since) FILTER (WHERE w.state = 'active')
FROM recourse.webhooks w JOIN recourse.webhook_positions p ON p.webhook_id = w.id WHERE w.state <> 'deleted'`

// Health returns the counts of now.
func (s *Store) Health(ctx context.Context) (h Health, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var since sql.NullTime
	err = s.journal.Reads().QueryRowContext(ctx, healthSQL).Scan(&h.Active, &h.Paused, &since, &h.FailingActive)
	h.FailingSince = utcOrZero(since)
	return h, pg.Wrap(err)
}

// Create stores a new webhook whose first event is the first after a position, with its receipt in
// the same commit. It returns ErrTooMany if the tenant has MaxWebhooks. After any other error the
// outcome is unknown: list the webhooks.
func (s *Store) Create(ctx context.Context, w Webhook, draft receipts.Draft) error {
	draft.Subtype = receipts.WebhookChanged
	draft.Payload.WebhookPosition = &receipts.WebhookPosition{After: w.Position.ReadTo}
	return s.journal.InSlowPathTx(ctx, failpoint.Webhook, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.webhooks (id, tenant, version, state, definition, secret, created_at, created_by, changed_at, changed_by, reason)
			VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $6, $7, $8)`, w.ID, w.Tenant, w.State, w.Definition, w.Secret, w.CreatedAt, w.CreatedBy, w.Reason); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.webhook_positions (webhook_id, tenant, version, read_to, pending) VALUES ($1, $2, 1, $3, '{}')`, w.ID, w.Tenant, w.Position.ReadTo); err != nil {
			return err
		}
		if err := journal.AppendOperation(ctx, tx, w.Tenant, Log, draft); err != nil {
			return err
		}
		// The log is locked, so that concurrent calls can't exceed the limit.
		var n int
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM recourse.webhooks WHERE tenant = $1 AND state <> 'deleted'`, w.Tenant).Scan(&n)
		if err == nil && n > MaxWebhooks {
			err = ErrTooMany
		}
		return err
	})
}

// Change is how a webhook changes.
type Change struct {
	Next    Webhook
	Draft   receipts.Draft
	ReadTo  *int64 // the position after which it continues; nil: where it is
	Resumed bool   // its failures are over: it begins anew
}

// Update changes a webhook of a tenant together with its receipt. decide returns the change or an
// error; it is called once, on the locked row. The version is incremented. Errors: ErrNotFound if
// the tenant has no such webhook, also if it is deleted; those of decide. After any other error the
// outcome is unknown: read the webhook again.
func (s *Store) Update(ctx context.Context, tenant string, id uuid.UUID, decide func(now Webhook) (Change, error)) (now Webhook, err error) {
	err = s.journal.InSlowPathTx(ctx, failpoint.Webhook, func(ctx context.Context, tx *sql.Tx) error {
		found, err := selectWebhooks(ctx, tx, `WHERE w.tenant = $1 AND w.id = $2 AND w.state <> 'deleted' FOR NO KEY UPDATE OF w`, tenant, id)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return background.ErrNotFound
		}
		now = found[0]
		c, err := decide(now)
		if err != nil {
			return err
		}
		c.Next.Version = now.Version + 1
		c.Draft.Subtype = receipts.WebhookChanged
		if err := updateWebhook(ctx, tx, &c); err != nil {
			return err
		}
		now = c.Next
		now.Position = c.position(now.Position)
		return journal.AppendOperation(ctx, tx, tenant, Log, c.Draft)
	})
	return now, err
}

// position returns the position after the change.
func (c *Change) position(p Position) Position {
	if c.ReadTo != nil {
		p.ReadTo, p.Pending = *c.ReadTo, nil
	}
	if c.ReadTo != nil || c.Resumed {
		p.Version, p.Failures, p.FailingSince, p.LastFailure = p.Version+1, 0, time.Time{}, ""
	}
	return p
}

// updateWebhook writes a change. If it sets the position its receipt says how many events had been
// delivered: what the sender writes meanwhile is counted on one side of it.
func updateWebhook(ctx context.Context, tx *sql.Tx, c *Change) error {
	w := c.Next
	if _, err := tx.ExecContext(ctx, `UPDATE recourse.webhooks SET version = $2, state = $3, definition = $4, secret = $5, former_secret = $6, former_until = $7, changed_at = $8, changed_by = $9, reason = $10 WHERE id = $1`,
		w.ID, w.Version, w.State, w.Definition, w.Secret, w.FormerSecret, nullTime(w.FormerUntil), w.ChangedAt, w.ChangedBy, w.Reason); err != nil {
		return err
	}
	if c.ReadTo == nil && !c.Resumed {
		return nil
	}
	var delivered int64
	err := tx.QueryRowContext(ctx, `UPDATE recourse.webhook_positions SET version = version + 1, failures = 0, failing_since = NULL, last_failure = '',
		read_to = coalesce($2, read_to), pending = CASE WHEN $2::bigint IS NULL THEN pending ELSE '{}' END WHERE webhook_id = $1 RETURNING delivered`, w.ID, c.ReadTo).Scan(&delivered)
	if err == nil && c.ReadTo != nil {
		c.Draft.Payload.WebhookPosition = &receipts.WebhookPosition{After: *c.ReadTo, Delivered: delivered}
	}
	return err
}
