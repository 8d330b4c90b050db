package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Escrow is what an escrow holds and what its cases have committed of it, at one moment.
// OpenDeltas is the part of Committed that is not folded into its row yet.
type Escrow struct {
	Tenant     string `db:"tenant"`
	Reference  string `db:"reference"`
	Currency   string `db:"currency"`
	Held       int64  `db:"held"`
	Committed  int64  `db:"committed"`
	OpenDeltas int64  `db:"open"`
	Breached   int64  `db:"breached"`
}

const escrowSQL = `SELECT tenant, reference, currency, held, committed, open, breached FROM recourse.escrow_sums WHERE tenant = $1 AND reference = $2`

// Escrows keeps what escrow services hold.
type Escrows struct {
	*shared
}

// Find reads an escrow of a tenant. It returns ErrNotFound if there is none.
func (e *Escrows) Find(ctx context.Context, tenant, reference string) (Escrow, error) {
	var out []Escrow
	err := e.readDB.SelectContext(ctx, &out, escrowSQL, tenant, reference)
	if err == nil && len(out) == 0 {
		err = background.ErrNotFound
	}
	if err != nil {
		return Escrow{}, err
	}
	return out[0], nil
}

// Breaches counts breaches of conservation and contradictions about payments, over all tenants. No number ever falls.
type Breaches struct {
	Excesses       int64          // payments beyond what was adjudicated: receipts conservation-breach
	Contradictions int64          // answers and findings that contradict a payment on record: receipts contradicted
	Escrows        int64          // escrows whose row has committed more than it holds
	Overdrawn      settlement.Sum // the excess of these escrows, added up over all currencies: only a rise has a meaning
}

// Any reports whether there is one.
func (b Breaches) Any() bool { return b.Excesses > 0 || b.Contradictions > 0 || b.Escrows > 0 }

// breachesSQL repeats the predicates of the partial indexes on breaches.
const breachesSQL = `SELECT (SELECT count(*) FROM recourse.receipts WHERE subtype = 'conservation-breach'),
  (SELECT count(*) FROM recourse.receipts WHERE subtype = 'contradicted'), count(*), coalesce(sum(breached), 0)
FROM recourse.escrows WHERE breached > 0`

// Breaches counts breaches at one moment.
func (e *Escrows) Breaches(ctx context.Context) (b Breaches, err error) {
	return b, b.read(ctx, e.readDB)
}

func (b *Breaches) read(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	err := q.QueryRowContext(ctx, breachesSQL).Scan(&b.Excesses, &b.Contradictions, &b.Escrows, &b.Overdrawn)
	return pg.Wrap(err)
}

// Breached lists escrows of all tenants that committed more than they hold, newest
// first.
func (e *Escrows) Breached(ctx context.Context, limit int) ([]Escrow, error) {
	var out []Escrow
	if err := e.readDB.SelectContext(ctx, &out, `SELECT tenant, reference, currency, held, committed, open, breached
		FROM recourse.escrow_sums WHERE breached > 0 ORDER BY id DESC LIMIT $1`, limit); err != nil {
		return nil, pg.Wrap(err)
	}
	return out, nil
}

const unfoldedSQL = `SELECT DISTINCT escrow_id FROM recourse.escrow_deltas WHERE escrow_id > $1 ORDER BY escrow_id LIMIT $2`

// foldDeltasSQL adds open deltas to their escrows. It counts only what its own DELETE
// returned: its snapshot also shows deltas that another transaction folded while this one
// waited for the row. It never waits, and skips an escrow that is locked: the next fold
// takes it.
const foldDeltasSQL = `
WITH locked_escrows AS MATERIALIZED (
  SELECT e.id FROM recourse.escrows e WHERE e.id = ANY($1) ORDER BY e.id FOR NO KEY UPDATE OF e SKIP LOCKED
), fold AS (
  DELETE FROM recourse.escrow_deltas x USING locked_escrows e WHERE x.escrow_id = e.id RETURNING x.escrow_id, x.delta
), escrow_write AS (
  UPDATE recourse.escrows e SET committed = e.committed + s.delta, breached = greatest(e.breached, e.committed + s.delta - e.held)
  FROM (SELECT escrow_id, sum(delta)::bigint AS delta FROM fold GROUP BY 1) s WHERE e.id = s.escrow_id
)
SELECT count(*) FROM fold`

// foldBatch is the most escrows that one statement folds.
const foldBatch = 256

// FoldDeltas folds the open deltas of all escrows that no transaction has locked, and
// returns how many deltas it folded. Until they are folded, deltas count wherever the sum
// of an escrow is read, and free no room for reservations. An escrow whose sum Postgres refuses keeps its
// deltas, and the error names it; the others are folded.
func (e *Escrows) FoldDeltas(ctx context.Context) (folded int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var refused error
	for after := int64(0); ; {
		var open []int64
		if err := e.readDB.SelectContext(ctx, &open, unfoldedSQL, after, foldBatch); err != nil {
			return folded, errors.Join(refused, pg.Wrap(err))
		}
		if len(open) == 0 {
			return folded, refused
		}
		n, err := e.foldEscrows(ctx, open)
		if pg.IsDataError(err) {
			n, err = e.foldEach(ctx, open, &refused)
		}
		if folded += n; err != nil {
			return folded, errors.Join(refused, err)
		}
		after = open[len(open)-1]
	}
}

// foldEach folds escrows one by one, and adds the error of each that Postgres refuses to refused.
func (e *Escrows) foldEach(ctx context.Context, escrows []int64, refused *error) (folded int64, err error) {
	for _, id := range escrows {
		n, err := e.foldEscrows(ctx, []int64{id})
		switch {
		case pg.IsDataError(err):
			*refused = errors.Join(*refused, fmt.Errorf("escrow %d: %w", id, err))
		case err != nil:
			return folded, err
		}
		folded += n
	}
	return folded, nil
}

func (e *Escrows) foldEscrows(ctx context.Context, escrows []int64) (folded int64, err error) {
	failpoint.Hit(failpoint.JournalBefore, failpoint.FoldDeltas)
	err = e.batchDB.QueryRowContext(ctx, foldDeltasSQL, pq.Array(escrows)).Scan(&folded)
	failpoint.Hit(failpoint.JournalAfter, failpoint.FoldDeltas)
	if err != nil {
		return 0, busyOrWrapped(err)
	}
	return folded, nil
}

type escrowKey struct{ tenant, reference string }

// ensureEscrowsSQL creates escrows that do not exist yet. It is committed before their cases are opened: an
// escrow that no case ever uses does no harm. It looks for an escrow first, because ON CONFLICT alone waits for
// a transaction that has changed the row.
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
		escrow := changes[i].OpeningEscrow
		name := escrowKey{changes[i].After.Case.Tenant, escrow.Reference}
		if escrow.Reference == "" || o.knownEscrows.has(name) {
			continue
		}
		c.Str(name.tenant)
		c.Str(name.reference)
		c.Str(escrow.Currency)
		c.Int(escrow.Held)
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
	o.knownEscrows.forget(escrowKey{ch.After.Case.Tenant, ch.OpeningEscrow.Reference})
	return o.ensureEscrows(ctx, []*chainedChange{ch})
}

// correctUnusedEscrowSQL changes the sum and currency of an escrow that no case has used: a
// submission that never became a case created it.
const correctUnusedEscrowSQL = `
UPDATE recourse.escrows SET held = $3, currency = $4 WHERE id IN (
  SELECT id FROM recourse.escrows e WHERE tenant = $1 AND reference = $2 AND committed = 0 AND breached = 0
    AND NOT EXISTS (SELECT FROM recourse.escrow_deltas d WHERE d.escrow_id = e.id)
    AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = e.id) FOR NO KEY UPDATE SKIP LOCKED)`

// correctUnusedEscrow sets the sum and currency of an escrow that no case has used to those with which a case is
// opened, in a transaction of its own or in the caller's. It reports false if a case uses the escrow, or if
// another transaction has locked it.
func correctUnusedEscrow(ctx context.Context, q pg.Execer, tenant string, escrow OpeningEscrow) (bool, error) {
	done, err := pg.Exec(ctx, q, failpoint.CorrectEscrow, correctUnusedEscrowSQL, tenant, escrow.Reference, escrow.Held, escrow.Currency)
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

func (c *escrowCache) has(e escrowKey) bool {
	h := c.hash(e)
	return c.slots[h%escrowCacheSize].Load() == h
}

func (c *escrowCache) add(e escrowKey) {
	h := c.hash(e)
	c.slots[h%escrowCacheSize].Store(h)
}

func (c *escrowCache) forget(e escrowKey) {
	h := c.hash(e)
	c.slots[h%escrowCacheSize].CompareAndSwap(h, 0)
}

// hash never returns 0, the value of an empty slot.
func (c *escrowCache) hash(e escrowKey) uint64 { return maphash.Comparable(c.seed, e) | 1<<63 }

// ReturnedPayments is the SideEffect of a change that records payments of its case that came back. Their references
// are those of the tenant's returns from then on: a change of which one is recorded is not written, and
// CommitTransition returns ErrReturnRecorded.
type ReturnedPayments struct {
	Tenant  string
	Case    receipts.CaseID
	After   int64 // what has come back of the case after the change
	Returns []ReturnedPayment
}

// ReturnedPayment is a payment, or a part of it, that came back.
type ReturnedPayment struct {
	Reference string // unique in its tenant
	Seq       int64  // of its receipt
	Run       background.RunID
	Amount    int64
}

func (ReturnedPayments) failpointName() string { return failpoint.ReturnedPayments }

const (
	insertReturnsSQL = `INSERT INTO recourse.returns (tenant, reference, case_id, seq, run_id, amount)
SELECT $1, t.reference, $2::uuid, t.seq, t.run_id, t.amount FROM unnest($3::text[], $4::bigint[], $5::uuid[], $6::bigint[]) AS t(reference, seq, run_id, amount)
ORDER BY t.reference ON CONFLICT DO NOTHING`

	setReturnedSQL = `UPDATE recourse.cases SET returned = $2 WHERE id = $1::uuid`
)

func (r ReturnedPayments) write(ctx context.Context, tx *sql.Tx) error {
	c := pg.NewTextColumns(4, len(r.Returns))
	for _, p := range r.Returns {
		c.Str(p.Reference)
		c.Int(p.Seq)
		c.ID(p.Run)
		c.Int(p.Amount)
	}
	done, err := tx.ExecContext(ctx, insertReturnsSQL, append([]any{r.Tenant, r.Case.String()}, c.Args()...)...)
	if err != nil {
		return err
	}
	switch n, err := done.RowsAffected(); {
	case err != nil:
		return err
	case n != int64(len(r.Returns)):
		return ErrReturnRecorded
	}
	_, err = tx.ExecContext(ctx, setReturnedSQL, r.Case.String(), r.After)
	return err
}

// RecordedReturn is a return that is recorded.
type RecordedReturn struct {
	Subject string // of its case
	Amount  settlement.Money
}

const returnsSQL = `SELECT r.reference, c.subject, r.amount, e.currency FROM recourse.returns r JOIN recourse.cases c ON c.id = r.case_id JOIN recourse.escrows e ON e.id = c.escrow_id
WHERE r.tenant = $1 AND r.reference = ANY($2)`

// Returns reads the recorded returns of a tenant by their references.
func (c *Cases) Returns(ctx context.Context, tenant string, references []string) (map[string]RecordedReturn, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := c.readDB.QueryContext(ctx, returnsSQL, tenant, pq.StringArray(references))
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := map[string]RecordedReturn{}
	for rows.Next() {
		var reference string
		var r RecordedReturn
		if err := rows.Scan(&reference, &r.Subject, &r.Amount.Minor, &r.Amount.Currency); err != nil {
			return nil, pg.Wrap(err)
		}
		out[reference] = r
	}
	return out, pg.Wrap(rows.Err())
}
