package postgres

import (
	"context"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

const unfoldedSQL = `SELECT DISTINCT escrow_id FROM recourse.escrow_deltas WHERE escrow_id > $1 ORDER BY escrow_id LIMIT $2`

// foldDeltasSQL adds open deltas to the escrows that they are of. It counts only what its
// own DELETE returned: its snapshot also shows deltas that another transaction has
// folded while this one came to the lock. It never waits, and leaves an escrow that is
// locked to whoever holds it.
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

// foldBatch is how many escrows one statement folds at most.
const foldBatch = 256

// FoldDeltas folds the open deltas of all escrows that no transaction has locked, and
// reports how many deltas that were. Until then they count as committed wherever the
// sum of an escrow is read, and free no room.
func (j *Journal) FoldDeltas(ctx context.Context) (folded int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for after := int64(0); ; {
		var open []int64
		if err := j.readDB.SelectContext(ctx, &open, unfoldedSQL, after, foldBatch); err != nil {
			return folded, unavailable(err)
		}
		if len(open) == 0 {
			return folded, nil
		}
		n, err := j.foldEscrows(ctx, open)
		if folded += n; err != nil {
			return folded, err
		}
		after = open[len(open)-1]
	}
}

func (j *Journal) foldEscrows(ctx context.Context, escrows []int64) (folded int64, err error) {
	failpoint.Hit(failpoint.JournalBefore, failpoint.FoldDeltas)
	err = j.batchDB.QueryRowContext(ctx, foldDeltasSQL, pq.Array(escrows)).Scan(&folded)
	failpoint.Hit(failpoint.JournalAfter, failpoint.FoldDeltas)
	if err != nil {
		return 0, busyOrUnavailable(err)
	}
	return folded, nil
}
