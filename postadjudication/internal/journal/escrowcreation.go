package journal

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

type escrowKey struct{ tenant, reference string }

// ensureEscrowsSQL creates escrows that do not exist yet. It commits by itself: an escrow
// that no case ever uses does no harm. It looks for the escrow first, because ON CONFLICT
// alone waits for a transaction that has changed the row.
const ensureEscrowsSQL = `
INSERT INTO recourse.escrows (tenant, reference, currency, held)
SELECT DISTINCT ON (tenant, reference) * FROM unnest($1::text[],$2::text[],$3::text[],$4::bigint[]) AS t(tenant,reference,currency,held)
WHERE NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.tenant = t.tenant AND e.reference = t.reference)
ORDER BY tenant, reference ON CONFLICT (tenant, reference) DO NOTHING`

// ensureEscrows creates the escrows of new cases before the statement that opens the cases,
// because a statement cannot update a row that it inserts itself. It reports whether it
// created any.
func (o *opener) ensureEscrows(ctx context.Context, changes []*chainedChange) (created bool, err error) {
	c := pg.NewTextColumns(4, 1)
	var names []escrowKey
	for i := range changes {
		opening := changes[i].Opening
		name := escrowKey{changes[i].After.Case.Tenant, opening.Reference}
		if opening.Reference == "" || o.knownEscrows.has(name) {
			continue
		}
		c.Str(name.tenant)
		c.Str(name.reference)
		c.Str(opening.Currency)
		c.Int(opening.Held)
		names = append(names, name)
	}
	if len(names) == 0 {
		return false, nil
	}
	done, err := pg.Exec(ctx, o.batchDB, failpoint.Escrow, ensureEscrowsSQL, c.Args()...)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		o.knownEscrows.add(name)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// recreateEscrow creates the escrow of a case that could not be opened, if the escrow does
// not exist: a failover may have lost the row while this process still has it in its cache.
// It reports whether it created the row.
func (o *opener) recreateEscrow(ctx context.Context, ch *chainedChange) (created bool, err error) {
	o.knownEscrows.forget(escrowKey{ch.After.Case.Tenant, ch.Opening.Reference})
	return o.ensureEscrows(ctx, []*chainedChange{ch})
}

// correctEscrowSQL changes the sum and currency of an escrow that no case has used: a
// submission that never became a case created it.
const correctEscrowSQL = `
UPDATE recourse.escrows SET held = $3, currency = $4 WHERE id IN (
  SELECT id FROM recourse.escrows e WHERE tenant = $1 AND reference = $2 AND committed = 0 AND breached = 0
    AND NOT EXISTS (SELECT FROM recourse.escrow_deltas d WHERE d.escrow_id = e.id)
    AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = e.id) FOR NO KEY UPDATE SKIP LOCKED)`

// correctEscrow sets the escrow's sum and currency to those of the opening, in a
// transaction of its own or in the caller's. It reports whether it could.
func correctEscrow(ctx context.Context, q pg.Execer, tenant string, opening Opening) (bool, error) {
	done, err := pg.Exec(ctx, q, failpoint.CorrectEscrow, correctEscrowSQL, tenant, opening.Reference, opening.Held, opening.Currency)
	if err != nil {
		return false, pg.Wrap(err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// escrowCacheSize is the most escrows in the cache; a power of two.
const escrowCacheSize = 1 << 16

// escrowCache remembers escrows that exist. An entry is the hash of the escrow, in the slot
// given by the hash, until another hash replaces it. What is not in the cache is read from
// the database again. It holds no pointers that the garbage collector would have to follow.
type escrowCache struct {
	seed  maphash.Seed
	slots [escrowCacheSize]atomic.Uint64
}

func newEscrowCache() *escrowCache { return &escrowCache{seed: maphash.MakeSeed()} }

func (m *escrowCache) has(e escrowKey) bool {
	h := m.hash(e)
	return m.slots[h%escrowCacheSize].Load() == h
}

func (m *escrowCache) add(e escrowKey) {
	h := m.hash(e)
	m.slots[h%escrowCacheSize].Store(h)
}

func (m *escrowCache) forget(e escrowKey) {
	h := m.hash(e)
	m.slots[h%escrowCacheSize].CompareAndSwap(h, 0)
}

// hash never returns 0, the value of an empty slot.
func (m *escrowCache) hash(e escrowKey) uint64 { return maphash.Comparable(m.seed, e) | 1<<63 }
