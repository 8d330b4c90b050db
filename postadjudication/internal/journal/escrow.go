package journal

import (
	"context"
	"database/sql"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
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

// Breaches counts breaches of conservation, over all tenants. No number ever falls.
type Breaches struct {
	Excesses  int64 // payments beyond what was adjudicated: receipts conservation-breach
	Escrows   int64 // escrows whose row has committed more than it holds
	Overdrawn int64 // the excess of these escrows, added up over all currencies: only a rise has a meaning
}

// breachesSQL repeats the predicates of the partial indexes on breaches.
const breachesSQL = `SELECT (SELECT count(*) FROM recourse.receipts WHERE subtype = 'conservation-breach'), count(*), least(coalesce(sum(breached), 0), 9223372036854775807)::bigint
FROM recourse.escrows WHERE breached > 0`

// Breaches counts breaches at one moment.
func (e *Escrows) Breaches(ctx context.Context) (b Breaches, err error) {
	return b, b.read(ctx, e.readDB)
}

func (b *Breaches) read(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	err := q.QueryRowContext(ctx, breachesSQL).Scan(&b.Excesses, &b.Escrows, &b.Overdrawn)
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
WITH e AS MATERIALIZED (
  SELECT e.id FROM recourse.escrows e WHERE e.id = ANY($1) ORDER BY e.id FOR NO KEY UPDATE OF e SKIP LOCKED
), fold AS (
  DELETE FROM recourse.escrow_deltas x USING e WHERE x.escrow_id = e.id RETURNING x.escrow_id, x.delta
), x AS (
  UPDATE recourse.escrows e SET committed = e.committed + s.delta, breached = greatest(e.breached, e.committed + s.delta - e.held)
  FROM (SELECT escrow_id, sum(delta)::bigint AS delta FROM fold GROUP BY 1) s WHERE e.id = s.escrow_id
)
SELECT count(*) FROM fold`

// foldBatch is the most escrows that one statement folds.
const foldBatch = 256

// FoldDeltas folds the open deltas of all escrows that no transaction has locked, and
// returns how many deltas it folded. Until they are folded, deltas count wherever the sum
// of an escrow is read, and free no room for reservations.
func (e *Escrows) FoldDeltas(ctx context.Context) (folded int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	for after := int64(0); ; {
		var open []int64
		if err := e.readDB.SelectContext(ctx, &open, unfoldedSQL, after, foldBatch); err != nil {
			return folded, pg.Wrap(err)
		}
		if len(open) == 0 {
			return folded, nil
		}
		n, err := e.foldEscrows(ctx, open)
		if folded += n; err != nil {
			return folded, err
		}
		after = open[len(open)-1]
	}
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
