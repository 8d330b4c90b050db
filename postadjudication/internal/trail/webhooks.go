package trail

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
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

// EventsFrom streams a tenant's receipts in the order of events, beginning with the first whose number
// is at least from. It reads pages, each at a moment of its own.
func (r *Reader) EventsFrom(ctx context.Context, tenant string, from int64) iter.Seq2[NumberedReceipt, error] {
	return func(yield func(NumberedReceipt, error) bool) {
		for {
			page, err := stored.EventPage(ctx, r.db, tenant, from, trailPage)
			if err != nil {
				yield(NumberedReceipt{}, failed(err))
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
				from = one.Number + 1
			}
			if len(page) < trailPage {
				return
			}
		}
	}
}

// NumberedReceipt is a receipt with its number in the order of its tenant's receipts.
type NumberedReceipt = stored.NumberedReceipt

// webhookPositionSQL finds webhooks of a tenant without a position, positions without a webhook, and
// positions that would skip events: those beyond the newest event, and pending ones beyond what was
// read.
const webhookPositionSQL = `
SELECT NULL::uuid, NULL::uuid, 'webhook ' || w.id || ' of ' || $1::text || ' has no position', NULL::text, NULL::text FROM recourse.webhooks w
WHERE w.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.webhook_positions p WHERE p.webhook_id = w.id AND p.tenant = w.tenant)
UNION ALL
SELECT NULL, NULL, 'a position of ' || $1 || ' is of webhook ' || p.webhook_id || ', which is not stored', NULL, NULL FROM recourse.webhook_positions p
WHERE p.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.webhooks w WHERE w.id = p.webhook_id AND w.tenant = p.tenant)
UNION ALL
SELECT NULL, NULL, 'webhook ' || p.webhook_id || ' of ' || $1 || ' is at position ' || p.read_to || ', and the newest one is ' || e.newest || ': it would miss events', p.read_to::text, e.newest::text
FROM recourse.webhook_positions p, (SELECT coalesce(max(coalesce(tenant_last, last)), 0) * 8 + 7 AS newest FROM recourse.event_log WHERE tenant = $1) e
WHERE p.tenant = $1 AND p.read_to > e.newest
UNION ALL
SELECT NULL, NULL, 'webhook ' || p.webhook_id || ' of ' || $1 || ' has pending events that are no positions up to ' || p.read_to || ', each once', p.pending::text, NULL
FROM recourse.webhook_positions p WHERE p.tenant = $1 AND (array_position(p.pending, NULL) IS NOT NULL OR EXISTS (SELECT FROM unnest(p.pending) AS u(at) WHERE at < 1 OR at > p.read_to)
  OR cardinality(p.pending) <> (SELECT count(DISTINCT at) FROM unnest(p.pending) AS u(at)))
ORDER BY 3`

// The statement above has stored.PositionsPerReceipt as 8. These don't compile if it is another number.
const (
	_ = uint(stored.PositionsPerReceipt - 8)
	_ = uint(8 - stored.PositionsPerReceipt)
)
