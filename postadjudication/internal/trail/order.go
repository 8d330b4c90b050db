package trail

import (
	"context"
	"iter"

	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// eventOrderErrorsSQL compares all receipts of a tenant with their places, as of one
// moment. A receipt that waits to be numbered counts as after all that are numbered. The
// server sorts, and nothing is kept here.
const eventOrderErrorsSQL = `
WITH places AS (
  SELECT u.case_id, u.seq, l.last - cardinality(l.seqs) + u.place AS number FROM recourse.event_log l, LATERAL (
    SELECT case_id, seq, row_number() OVER (ORDER BY case_id, seq) AS place FROM unnest(l.case_ids, l.seqs) AS u(case_id, seq)) u
  WHERE l.tenant = $1
  UNION ALL
  SELECT u.case_id, u.seq, NULL FROM recourse.outbox o, unnest(o.case_ids, o.seqs) AS u(case_id, seq) WHERE o.tenant = $1
), told AS (
  SELECT case_id, seq, count(*) AS times, coalesce(max(number), 9223372036854775807) AS number FROM places GROUP BY 1, 2
), placed AS (
  SELECT t.*, lag(t.number, 1, 0::bigint) OVER (PARTITION BY t.case_id ORDER BY t.seq) AS before FROM told t
)
SELECT coalesce(p.case_id, r.case_id), coalesce(p.seq, r.seq), coalesce(r.subtype, ''), coalesce(p.times, 0), coalesce(p.number < p.before, false)
FROM placed p FULL JOIN (SELECT case_id, seq, subtype FROM recourse.receipts WHERE tenant = $1) r ON r.case_id = p.case_id AND r.seq = p.seq
WHERE r.seq IS NULL OR p.times IS DISTINCT FROM 1 OR p.number < p.before
ORDER BY (r.subtype = 'dead-lettered') DESC NULLS LAST, 1, 2`

// eventGapSQL finds the ranges of numbers that are missing in the order of events; where the
// order is wrong, the range that is given twice.
const eventGapSQL = `SELECT before + 1, first - 1 FROM (SELECT last, last - cardinality(seqs) + 1 AS first, lag(last, 1, 0::bigint) OVER (ORDER BY last) AS before FROM recourse.event_log) g
WHERE first <> before + 1 ORDER BY last`

// projectionAheadSQL finds a projection that claims a position after the end of the event
// log: it would skip the next receipts.
const projectionAheadSQL = `SELECT NULL::uuid, NULL::uuid, 'the order of events ends at ' || e.last || ', and the list of ' || p.name || ' follows it up to ' || p.last
FROM recourse.projected p, (SELECT coalesce(max(last), 0) AS last FROM recourse.event_log) e WHERE p.last > e.last`

// tenantEventGapSQL finds gaps between a tenant's own numbers. Numbers
// that all tenants share only have to rise.
const tenantEventGapSQL = `SELECT before + 1, first - 1 FROM (
  SELECT last, tenant_last, coalesce(tenant_last, last) - cardinality(seqs) + 1 AS first, lag(coalesce(tenant_last, last), 1, 0::bigint) OVER (ORDER BY last) AS before
  FROM recourse.event_log WHERE tenant = $1) g
WHERE CASE WHEN tenant_last IS NULL THEN first <= before ELSE first <> before + 1 END ORDER BY last`

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
