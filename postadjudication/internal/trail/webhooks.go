package trail

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// Webhook is a webhook.
type Webhook struct {
	ID                   uuid.UUID
	Version              int64
	State                string
	Definition           string // as JSON
	Secret, FormerSecret []byte // encrypted; nil: there is none
	FormerUntil          time.Time
	CreatedAt, ChangedAt time.Time
	CreatedBy, ChangedBy string
	Reason               string
	PositionVersion      int64 // 0 without a position

	// How far it is: of the events up to ReadTo it waits for those at Pending; Delivered counts the
	// others, since it was created.
	ReadTo, Delivered int64
	Pending           []int64
}

// selectWebhooks reads all webhooks of a tenant, also deleted ones.
func selectWebhooks(ctx context.Context, tx *sql.Tx, tenant string) ([]Webhook, error) {
	return collect(ctx, tx, func(rows *sql.Rows) (w Webhook, err error) {
		var former sql.NullTime
		err = rows.Scan(&w.ID, &w.Version, &w.State, &w.Definition, &w.Secret, &w.FormerSecret, &former, &w.CreatedAt, &w.CreatedBy, &w.ChangedAt, &w.ChangedBy, &w.Reason, &w.PositionVersion, &w.ReadTo, &w.Delivered, pq.Array(&w.Pending))
		w.CreatedAt, w.ChangedAt = w.CreatedAt.UTC(), w.ChangedAt.UTC()
		if former.Valid {
			w.FormerUntil = former.Time.UTC()
		}
		return w, err
	}, `SELECT w.id, w.version, w.state, w.definition, w.secret, w.former_secret, w.former_until, w.created_at, w.created_by, w.changed_at, w.changed_by, w.reason, coalesce(p.version, 0), coalesce(p.read_to, 0), coalesce(p.delivered, 0),
  array_remove(coalesce(p.pending, '{}'), NULL)
FROM recourse.webhooks w LEFT JOIN recourse.webhook_positions p ON p.webhook_id = w.id AND p.tenant = w.tenant WHERE w.tenant = $1 ORDER BY w.id`, tenant)
}
