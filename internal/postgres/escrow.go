package postgres

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

type escrowKey struct{ tenant, reference string }

// ensureEscrowsSQL creates escrows that nobody has named yet. It commits by itself, and
// an escrow that no case ever uses does no harm. It looks first, because ON CONFLICT
// alone waits for a transaction that has changed the row it finds.
const ensureEscrowsSQL = `
INSERT INTO recourse.escrows (tenant, reference, currency, held)
SELECT DISTINCT ON (tenant, reference) * FROM unnest($1::text[],$2::text[],$3::text[],$4::bigint[]) AS t(tenant,reference,currency,held)
WHERE NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.tenant = t.tenant AND e.reference = t.reference)
ORDER BY tenant, reference ON CONFLICT (tenant, reference) DO NOTHING`

// ensureEscrows creates the escrows of cases to be opened before the statement
// that opens them, because that one cannot update a row that it inserts itself. It
// reports whether it created any.
func (j *Journal) ensureEscrows(ctx context.Context, rows []*chainedChange) (created bool, err error) {
	c := newColumns(4, 1)
	var names []escrowKey
	for i := range rows {
		o := rows[i].Opening
		name := escrowKey{rows[i].After.Case.Tenant, o.Reference}
		if o.Reference == "" || j.knownEscrows.has(name) {
			continue
		}
		c.str(name.tenant)
		c.str(name.reference)
		c.str(o.Currency)
		c.int(o.Held)
		names = append(names, name)
	}
	if len(names) == 0 {
		return false, nil
	}
	res, err := execWithFailpoints(ctx, j.batchDB, failpoint.Escrow, ensureEscrowsSQL, c.args()...)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		j.knownEscrows.add(name)
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// recreateEscrow creates the escrow of a case that could not be opened, if it is gone: a
// failover may have lost its row, which this process remembers all the same. It reports
// whether it did.
func (j *Journal) recreateEscrow(ctx context.Context, row *chainedChange) (created bool, err error) {
	j.knownEscrows.forget(escrowKey{row.After.Case.Tenant, row.Opening.Reference})
	return j.ensureEscrows(ctx, []*chainedChange{row})
}

// correctEscrowSQL gives an escrow that no case has used another sum or currency: it
// was named by a submission that never became a case.
const correctEscrowSQL = `
UPDATE recourse.escrows SET held = $3, currency = $4 WHERE id IN (
  SELECT id FROM recourse.escrows e WHERE tenant = $1 AND reference = $2 AND committed = 0 AND breached = 0
    AND NOT EXISTS (SELECT FROM recourse.escrow_deltas d WHERE d.escrow_id = e.id)
    AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = e.id) FOR NO KEY UPDATE SKIP LOCKED)`

// correctEscrow reports whether the escrow could be given what the opening says, in a
// transaction of its own or in the caller's.
func correctEscrow(ctx context.Context, q execer, tenant string, o Opening) (bool, error) {
	res, err := execWithFailpoints(ctx, q, failpoint.CorrectEscrow, correctEscrowSQL, tenant, o.Reference, o.Held, o.Currency)
	if err != nil {
		return false, unavailable(err)
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// Escrow is what an escrow holds and what its cases have committed of it, at one
// moment. Open is the part of Committed that its row does not show yet: deltas that
// nobody has folded.
type Escrow struct {
	Tenant     string `db:"tenant"`
	Reference  string `db:"reference"`
	Currency   string `db:"currency"`
	Held       int64  `db:"held"`
	Committed  int64  `db:"committed"`
	OpenDeltas int64  `db:"open"`
	Breached   int64  `db:"breached"`
}

const escrowSQL = `SELECT tenant, reference, currency, held, committed, open, breached FROM recourse.escrow_sums WHERE tenant = $1`

// FindEscrow reads an escrow of a tenant. ErrNotFound when nobody has named it.
func (j *Journal) FindEscrow(ctx context.Context, tenant, reference string) (Escrow, error) {
	var out []Escrow
	err := j.readDB.SelectContext(ctx, &out, escrowSQL+` AND reference = $2`, tenant, reference)
	if err == nil && len(out) == 0 {
		err = background.ErrNotFound
	}
	if err != nil {
		return Escrow{}, err
	}
	return out[0], nil
}

// Escrows lists a tenant's escrows.
func (j *Journal) Escrows(ctx context.Context, tenant string) ([]Escrow, error) {
	var out []Escrow
	err := j.readDB.SelectContext(ctx, &out, escrowSQL+` ORDER BY reference`, tenant)
	return out, err
}

// EscrowWithCaseSum reads, at one moment, an escrow of a tenant and what its cases add up to.
func (j *Journal) EscrowWithCaseSum(ctx context.Context, tenant, reference string) (e Escrow, sum int64, err error) {
	err = j.readDB.QueryRowContext(ctx, `SELECT e.tenant, e.reference, e.currency, e.held, e.committed, e.open, e.breached,
		coalesce((SELECT sum(c.reserved + c.released + c.refunded) FROM recourse.cases c WHERE c.escrow_id = e.id), 0)
		FROM recourse.escrow_sums e WHERE e.tenant = $1 AND e.reference = $2`, tenant, reference).
		Scan(&e.Tenant, &e.Reference, &e.Currency, &e.Held, &e.Committed, &e.OpenDeltas, &e.Breached, &sum)
	return e, sum, unavailableOrNil(err)
}
