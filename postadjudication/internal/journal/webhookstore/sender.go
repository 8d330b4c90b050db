package webhookstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Sender is the right to send: of all processes one holds its lock. The lock ends with its
// connection: when the process dies or is cut off, and after journal.SequencerIdle without a
// statement. A Sender is for one goroutine.
type Sender struct {
	db   *sql.DB
	conn *sql.Conn // holds the lock; nil: it is not held
}

// Sender returns a sender without the lock.
func (s *Store) Sender() *Sender { return &Sender{db: s.journal.Outbox.SenderPool()} }

// The advisory lock of the sender; its key follows that of lookups.
const trySenderLockSQL = `SELECT pg_try_advisory_lock(1919119987, 5)`

// Active takes the lock if it is free, and returns the active webhooks of all tenants. It reports
// false if another process holds the lock. After an error the lock is not held.
func (s *Sender) Active(ctx context.Context) (active []Webhook, holds bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	if s.conn == nil {
		if s.conn, err = pg.TryLock(ctx, s.db, trySenderLockSQL); err != nil || s.conn == nil {
			return nil, false, err
		}
	}
	if active, err = selectWebhooks(ctx, s.conn, `WHERE w.state = 'active'`); err != nil {
		return nil, false, errors.Join(pg.Wrap(err), s.Release(ctx))
	}
	return active, true, nil
}

// Progress is a position that the sender has reached.
type Progress struct {
	ID uuid.UUID
	Position
}

// progressRow is a Progress as saveSQL reads it.
type progressRow struct {
	ID           uuid.UUID `json:"id"`
	Version      int64     `json:"version"`
	ReadTo       int64     `json:"read_to"`
	Pending      []int64   `json:"pending"`
	Delivered    int64     `json:"delivered"`
	DeliveredAt  time.Time `json:"delivered_at,omitzero"`
	Failures     int64     `json:"failures"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastFailure  string    `json:"last_failure"`
}

const saveSQL = `
UPDATE recourse.webhook_positions p SET read_to = d.read_to, pending = d.pending, delivered = d.delivered, delivered_at = d.delivered_at,
  failures = d.failures, failing_since = d.failing_since, last_failure = d.last_failure
FROM jsonb_to_recordset($1::jsonb) AS d(id uuid, version bigint, read_to bigint, pending bigint[], delivered bigint, delivered_at timestamptz, failures bigint, failing_since timestamptz, last_failure text)
WHERE p.webhook_id = d.id AND p.version = d.version`

// ErrNotHeld means that the lock is not held.
var ErrNotHeld = errors.New("journal: another process may send webhooks")

// Save writes positions over the connection that holds the lock. A position that a person has set
// since it was read stays. After an error the lock is not held, and what was written is unknown:
// positions that were not saved are reached again.
func (s *Sender) Save(ctx context.Context, reached []Progress) error {
	if s.conn == nil {
		return ErrNotHeld
	}
	rows := make([]progressRow, len(reached))
	for i, p := range reached {
		rows[i] = progressRow{p.ID, p.Version, p.ReadTo, p.Pending, p.Delivered, p.DeliveredAt, p.Failures, p.FailingSince, p.LastFailure}
		if rows[i].Pending == nil {
			rows[i].Pending = []int64{}
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	failpoint.Hit(failpoint.JournalBefore, failpoint.WebhookPosition)
	_, err = s.conn.ExecContext(ctx, saveSQL, string(text))
	failpoint.Hit(failpoint.JournalAfter, failpoint.WebhookPosition)
	if err != nil {
		return errors.Join(pg.Wrap(err), s.Release(ctx))
	}
	return nil
}

// Release releases the lock, if it is held.
func (s *Sender) Release(ctx context.Context) error {
	conn := s.conn
	if s.conn = nil; conn == nil {
		return nil
	}
	return pg.ReleaseLocks(ctx, conn)
}
