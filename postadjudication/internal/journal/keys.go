package journal

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

const keySQL = `SELECT id, prefix, digest, tenant, principal, roles, queues, created_at, created_by, successor_of, expires_at, revoked_at, revoked_by, last_used_at FROM recourse.keys `

type keyRow struct {
	ID         uuid.UUID      `db:"id"`
	Prefix     string         `db:"prefix"`
	Digest     []byte         `db:"digest"`
	Tenant     string         `db:"tenant"`
	Principal  string         `db:"principal"`
	Roles      pq.StringArray `db:"roles"`
	Queues     pq.StringArray `db:"queues"`
	CreatedAt  time.Time      `db:"created_at"`
	CreatedBy  string         `db:"created_by"`
	Successor  string         `db:"successor_of"`
	ExpiresAt  sql.NullTime   `db:"expires_at"`
	RevokedAt  sql.NullTime   `db:"revoked_at"`
	RevokedBy  string         `db:"revoked_by"`
	LastUsedAt sql.NullTime   `db:"last_used_at"`
}

func (r *keyRow) key() access.Key {
	k := access.Key{
		ID: r.ID, Prefix: r.Prefix, Tenant: r.Tenant, Principal: r.Principal, Queues: r.Queues, CreatedAt: r.CreatedAt.UTC(), CreatedBy: r.CreatedBy, SuccessorOf: r.Successor,
		ExpiresAt: utcOrNil(r.ExpiresAt), RevokedAt: utcOrNil(r.RevokedAt), RevokedBy: r.RevokedBy, LastUsed: utcOrNil(r.LastUsedAt),
	}
	copy(k.Digest[:], r.Digest)
	for _, role := range r.Roles {
		k.Roles = append(k.Roles, access.Role(role))
	}
	return k
}

func utcOrNil(t sql.NullTime) *time.Time {
	if !t.Valid {
		return nil
	}
	utc := t.Time.UTC()
	return &utc
}

// Keys keeps access keys. It implements access.KeyStore.
type Keys struct {
	*shared
}

// FindKey returns the key with a prefix, of any tenant. It returns access.ErrUnknown if
// there is none.
func (k *Keys) FindKey(ctx context.Context, prefix string) (access.Key, error) {
	found, err := k.selectKeys(ctx, `WHERE prefix = $1`, prefix)
	if err == nil && len(found) == 0 {
		err = access.ErrUnknown
	}
	if err != nil {
		return access.Key{}, err
	}
	return found[0], nil
}

// List lists all keys of a tenant, also those that have ended, oldest first.
func (k *Keys) List(ctx context.Context, tenant string) ([]access.Key, error) {
	return k.selectKeys(ctx, `WHERE tenant = $1 ORDER BY created_at, id`, tenant)
}

// ToRenew lists the keys of all tenants that are valid at now and
//   - never expire, or
//   - were not used since unusedSince, or
//   - expire by endBy, without a successor that is valid after that.
func (k *Keys) ToRenew(ctx context.Context, now, endBy, unusedSince time.Time) ([]access.Key, error) {
	return k.selectKeys(ctx, `k WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) AND (
			expires_at IS NULL OR coalesce(last_used_at, created_at) < $3 OR expires_at <= $2 AND NOT EXISTS (
				SELECT FROM recourse.keys s WHERE s.tenant = k.tenant AND s.successor_of = k.prefix AND s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > $2)))
		ORDER BY tenant, created_at, id`, now, endBy, unusedSince)
}

func (k *Keys) selectKeys(ctx context.Context, where string, args ...any) ([]access.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []keyRow
	if err := k.readDB.SelectContext(ctx, &rows, keySQL+where, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]access.Key, len(rows))
	for i := range rows {
		out[i] = rows[i].key()
	}
	return out, nil
}

// UseKey records that a key was used, at most once a minute.
func (k *Keys) UseKey(ctx context.Context, id uuid.UUID, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, k.batchDB, failpoint.KeyUse, `UPDATE recourse.keys SET last_used_at = $2
		WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2::timestamptz - interval '1 minute')`, id, at)
	return pg.Wrap(err)
}

// Create stores a new key, with its receipt in the same commit. The names of targets that are payment queues
// begin with prefix. Errors:
// access.ErrRevoked if the key that it replaces was revoked; ErrNotFound if that key does
// not exist; *access.DutiesError if its principal would pay and decide.
func (k *Keys) Create(ctx context.Context, key access.Key, prefix string, draft receipts.Draft) error {
	draft.Subtype = receipts.KeyCreated
	return k.InSlowPathTx(ctx, failpoint.Key, func(ctx context.Context, tx *sql.Tx) error {
		roles := make(pq.StringArray, len(key.Roles))
		for i, r := range key.Roles {
			roles[i] = string(r)
		}
		if key.SuccessorOf != "" {
			var revoked bool
			err := tx.QueryRowContext(ctx, `SELECT revoked_at IS NOT NULL FROM recourse.keys WHERE tenant = $1 AND prefix = $2 FOR NO KEY UPDATE`, key.Tenant, key.SuccessorOf).Scan(&revoked)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				return background.ErrNotFound
			case err != nil:
				return err
			case revoked:
				return access.ErrRevoked
			}
		}
		if err := checkDuties(ctx, tx, &key, prefix); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO recourse.keys (id, prefix, digest, tenant, principal, roles, queues, created_at, created_by, successor_of, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, key.ID, key.Prefix, key.Digest[:], key.Tenant, key.Principal, roles, pq.Array(append([]string{}, key.Queues...)), key.CreatedAt, key.CreatedBy, key.SuccessorOf, key.ExpiresAt)
		if err != nil {
			return err
		}
		return AppendOperation(ctx, tx, key.Tenant, KeyLog, draft)
	})
}

// paymentQueues returns the payment queues that any process ever had: targets with a prefix, which is cut off.
func paymentQueues(ctx context.Context, q pg.RowQuerier, prefix string) (queues pq.StringArray, err error) {
	err = q.QueryRowContext(ctx, `SELECT coalesce(array_agg(substr(name, length($1) + 1)), '{}') FROM recourse.targets WHERE starts_with(name, $1)`, prefix).Scan(&queues)
	return queues, pg.Wrap(err)
}

// checkDuties returns a *access.DutiesError if the principal of a new key would pay and decide. It waits for
// others that make a key of the tenant.
func checkDuties(ctx context.Context, tx *sql.Tx, key *access.Key, prefix string) error {
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 14))`, key.Tenant); err != nil {
		return err
	}
	queues, err := paymentQueues(ctx, tx, prefix)
	if err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, `SELECT prefix, principal, roles, queues FROM recourse.keys
		WHERE tenant = $1 AND lower(principal) = lower($2) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3)`, key.Tenant, key.Principal, key.CreatedAt)
	if err != nil {
		return err
	}
	defer rows.Close()
	var others []access.Key
	for rows.Next() {
		var r keyRow
		if err := rows.Scan(&r.Prefix, &r.Principal, &r.Roles, &r.Queues); err != nil {
			return err
		}
		others = append(others, r.key())
	}
	mixed := access.CheckDuties(key, others, queues)
	if by := (*access.DutiesError)(nil); errors.As(mixed, &by) && by.Key == key.Prefix {
		by.Key = "" // it is not made
	}
	return errors.Join(rows.Err(), mixed)
}

// MixedDuties returns a *access.DutiesError for each principal of any tenant that pays and decides, by keys that
// are valid at a time. The names of targets that are payment queues begin with prefix.
func (k *Keys) MixedDuties(ctx context.Context, now time.Time, prefix string) (out []error, err error) {
	queues, err := paymentQueues(ctx, k.readDB, prefix)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	valid, err := k.selectKeys(ctx, `WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) ORDER BY tenant, created_at, id`, now)
	return mixedDuties(valid, queues), err
}

// CheckDuties returns a *access.DutiesError if a principal of a tenant decides about money and may fetch from a payment queue,
// by keys that are valid at a time. One whose keys were made before the queue paid may.
func (k *Keys) CheckDuties(ctx context.Context, tenant, principal, queue string, now time.Time) error {
	valid, err := k.selectKeys(ctx, `WHERE tenant = $1 AND lower(principal) = lower($2) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3) ORDER BY created_at, id`, tenant, principal, now)
	return errors.Join(append(mixedDuties(valid, []string{queue}), err)...)
}

// mixedDuties returns a *access.DutiesError for each principal of the keys that pays and decides.
func mixedDuties(valid []access.Key, queues []string) (out []error) {
	for i := range valid {
		ofTenant := slices.DeleteFunc(slices.Clone(valid[:i]), func(o access.Key) bool { return o.Tenant != valid[i].Tenant })
		if mixed := access.CheckDuties(&valid[i], ofTenant, queues); mixed != nil {
			out = append(out, mixed)
		}
	}
	return out
}

// Revoke revokes a key of a tenant for good, with its receipt in the same commit. If it
// is revoked already, nothing is written. It returns ErrNotFound if the tenant has no such
// key.
func (k *Keys) Revoke(ctx context.Context, tenant, prefix string, draft receipts.Draft) (key access.Key, err error) {
	draft.Subtype = receipts.KeyRevoked
	err = k.InSlowPathTx(ctx, failpoint.Key, func(ctx context.Context, tx *sql.Tx) error {
		var row keyRow
		err := tx.QueryRowContext(ctx, keySQL+`WHERE tenant = $1 AND prefix = $2 FOR NO KEY UPDATE`, tenant, prefix).Scan(
			&row.ID, &row.Prefix, &row.Digest, &row.Tenant, &row.Principal, &row.Roles, &row.Queues, &row.CreatedAt, &row.CreatedBy, &row.Successor, &row.ExpiresAt, &row.RevokedAt, &row.RevokedBy, &row.LastUsedAt)
		if errors.Is(err, sql.ErrNoRows) {
			return background.ErrNotFound
		}
		if key = row.key(); err != nil || key.RevokedAt != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.keys SET revoked_at = $2, revoked_by = $3 WHERE id = $1`, key.ID, draft.At, draft.Actor); err != nil {
			return err
		}
		key.RevokedAt, key.RevokedBy = &draft.At, draft.Actor
		return AppendOperation(ctx, tx, tenant, KeyLog, draft)
	})
	return key, err
}
