package trail

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

// Keys reads the access keys of a tenant, without secrets, and the receipts of its key log, at
// one moment.
func (r *Reader) Keys(ctx context.Context, tenant string) (keys []access.Key, rs []receipts.Receipt, err error) {
	err = r.atOneMoment(ctx, func(tx *sql.Tx) (err error) {
		keys, err = collect(ctx, tx, func(rows *sql.Rows) (k access.Key, err error) {
			var roles, queues pq.StringArray
			var expires, revoked sql.NullTime
			var digest []byte
			err = rows.Scan(&k.Prefix, &digest, &k.Principal, &roles, &queues, &k.CreatedAt, &k.CreatedBy, &k.SuccessorOf, &expires, &revoked, &k.RevokedBy)
			for _, role := range roles {
				k.Roles = append(k.Roles, access.Role(role))
			}
			copy(k.Digest[:], digest)
			k.Queues, k.Tenant, k.CreatedAt, k.ExpiresAt, k.RevokedAt = queues, tenant, k.CreatedAt.UTC(), utcOrNil(expires), utcOrNil(revoked)
			return k, err
		}, `SELECT prefix, digest, principal, roles, queues, created_at, created_by, successor_of, expires_at, revoked_at, revoked_by FROM recourse.keys WHERE tenant = $1 ORDER BY created_at, id`, tenant)
		if err != nil {
			return err
		}
		rs, err = operationLogTrail(ctx, tx, tenant, stored.KeyLog)
		return err
	})
	return keys, rs, err
}

func utcOrNil(t sql.NullTime) *time.Time {
	if !t.Valid {
		return nil
	}
	utc := t.Time.UTC()
	return &utc
}

// operationLogTrail reads the receipts of a tenant's operation log; none if nothing was ever
// written there.
func operationLogTrail(ctx context.Context, tx *sql.Tx, tenant, subject string) ([]receipts.Receipt, error) {
	var id uuid.UUID
	err := tx.QueryRowContext(ctx, `SELECT case_id FROM recourse.operation_logs WHERE tenant = $1 AND subject = $2`, tenant, subject).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return stored.CaseTrail(ctx, tx, tenant, receipts.CaseID(id))
}

// Policy is the retry policy that a person set for new runs of a family.
type Policy struct {
	Family  string
	Case    receipts.CaseID // of its receipts
	Version int64           // the sequence of the receipt that says the same
	Policy  string          // as stored and in the receipt; empty: as configured

	Actor, Reason string
	At            time.Time
}

// Policies lists the policies that were set for a tenant, by family.
func (r *Reader) Policies(ctx context.Context, tenant string) (out []Policy, err error) {
	out, err = collect(ctx, r.db, func(rows *sql.Rows) (p Policy, err error) {
		var id uuid.UUID
		err = rows.Scan(&p.Family, &id, &p.Version, &p.Policy, &p.Actor, &p.Reason, &p.At)
		p.Case, p.At = receipts.CaseID(id), p.At.UTC()
		return p, err
	}, `SELECT family, case_id, version, policy, actor, reason, at FROM recourse.policies WHERE tenant = $1 ORDER BY family`, tenant)
	return out, failed(err)
}

// People is the number of people that a tenant's money requires. The zero time and an empty
// actor mean that it was never set.
type People struct {
	People        int
	Actor, Reason string
	At            time.Time
}

// People reads the number in force for a tenant and the receipts of its people log, at one
// moment.
func (r *Reader) People(ctx context.Context, tenant string) (p People, rs []receipts.Receipt, err error) {
	p.People = stored.DefaultPeople
	err = r.atOneMoment(ctx, func(tx *sql.Tx) error {
		err := eachRow(ctx, tx, func(rows *sql.Rows) error {
			err := rows.Scan(&p.People, &p.Actor, &p.Reason, &p.At)
			p.At = p.At.UTC()
			return err
		}, `SELECT people, actor, reason, at FROM recourse.people WHERE tenant = $1`, tenant)
		if err != nil {
			return err
		}
		rs, err = operationLogTrail(ctx, tx, tenant, stored.PeopleLog)
		return err
	})
	return p, rs, err
}
