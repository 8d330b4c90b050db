package trail

import "github.com/recourse-dev/recourse/internal/schema/stored"

// operationMismatchSQL compares policies, breakers, rules, bulk plans, webhooks and operation logs
// with the cases of their receipts. It finds one without the other, and policies whose
// version is not that of their last receipt.
const operationMismatchSQL = `
WITH c AS MATERIALIZED (SELECT id, subject, last_seq FROM recourse.cases WHERE tenant = $1 AND kind = 'operations')
SELECT c.id, NULL::uuid, 'case ' || c.id || ' of ' || $1::text || ' has the receipts of ' || c.subject || ', which is not there', NULL::text, NULL::text FROM c
WHERE c.subject LIKE 'policy:%' AND NOT EXISTS (SELECT FROM recourse.policies p WHERE p.case_id = c.id)
   OR c.subject LIKE 'breaker:%' AND NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.case_id = c.id)
   OR c.subject = ANY($2) AND NOT EXISTS (SELECT FROM recourse.operation_logs r WHERE r.tenant = $1 AND r.subject = c.subject AND r.case_id = c.id)
UNION ALL
SELECT c.id, NULL::uuid, 'the policy of family ' || p.family || ' of ' || $1 || ' is at version ' || p.version || ', its last receipt is ' || c.last_seq, p.version::text, c.last_seq::text
FROM recourse.policies p JOIN c ON c.id = p.case_id WHERE p.tenant = $1 AND p.version <> c.last_seq
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'the circuit breaker of ' || k.target || ' for ' || coalesce(nullif(k.tenant, ''), 'all tenants') || ' was changed, and no receipt says so', NULL, NULL
FROM recourse.circuit_breakers k WHERE k.tenant = CASE $1 WHEN '*' THEN '' ELSE $1 END AND (k.version > 0 OR k.recorded_opening > 0 OR k.state <> 'closed') AND NOT EXISTS (SELECT FROM c WHERE c.id = k.case_id)
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'rule ' || u.name || ' of ' || $1 || ' was made, and no receipt says so', NULL, NULL FROM recourse.rules u
WHERE u.tenant = $1 AND (u.version > 0 OR u.enabled) AND NOT EXISTS (SELECT FROM c WHERE c.subject = 'rules')
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'bulk plan ' || b.id || ' of ' || $1 || ' was made, and no receipt says so', NULL, NULL FROM recourse.bulks b
WHERE b.tenant = $1 AND NOT EXISTS (SELECT FROM c WHERE c.subject = 'bulks')
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'webhook ' || w.id || ' of ' || $1 || ' was made, and no receipt says so', NULL, NULL FROM recourse.webhooks w
WHERE w.tenant = $1 AND NOT EXISTS (SELECT FROM c WHERE c.subject = 'webhooks')
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'the operation log ' || r.subject || ' of ' || $1 || ' names case ' || r.case_id || ', which is not there', NULL, NULL FROM recourse.operation_logs r
WHERE r.tenant = $1 AND NOT EXISTS (SELECT FROM c WHERE c.id = r.case_id)`

// planMismatchSQL compares the counts of a tenant's bulk plans with their items, and the
// items with the receipts that the plan wrote after the head it was planned at, also which run
// each fork made. Failed items are not compared with receipts: they may have been done after all. Of one case
// it compares only the items with the receipts.
const planMismatchSQL = `
WITH b AS MATERIALIZED (SELECT id, items, state, settled, action FROM recourse.bulks WHERE tenant = $1),
i AS MATERIALIZED (
  SELECT i.bulk_id, i.position, i.case_id, i.run_id, i.outcome, i.gate, i.currency, i.amount, i.seq, i.new_run FROM recourse.bulk_items i JOIN b ON b.id = i.bulk_id WHERE $2::uuid IS NULL OR i.case_id = $2
), n AS (
  SELECT bulk_id, true AS ran, outcome AS word, currency, count(*) AS items, sum(amount) AS amount FROM i WHERE outcome <> '' GROUP BY 1, 3, 4
  UNION ALL
  SELECT bulk_id, false, gate, currency, count(*), sum(amount) FROM i GROUP BY 1, 3, 4
), c AS (
  SELECT c.* FROM recourse.bulk_counts c JOIN b ON b.id = c.bulk_id WHERE c.items <> 0 AND c.word NOT IN ('` + stored.BulkScanned + `', '` + stored.BulkUndecided + `')
)
SELECT NULL::uuid, NULL::uuid, 'bulk plan ' || coalesce(n.bulk_id, c.bulk_id) || ' of ' || $1::text || ' counts ' || coalesce(c.items, 0) || ' items ' || CASE WHEN coalesce(n.ran, c.ran) THEN 'ended as ' ELSE 'planned as ' END
  || coalesce(nullif(coalesce(n.word, c.word), ''), 'ready') || ', and has ' || coalesce(n.items, 0),
  coalesce(c.items, 0) || ' items, ' || coalesce(c.amount, 0) || ' in minor units', coalesce(n.items, 0) || ' items, ' || coalesce(n.amount, 0) || ' in minor units'
FROM n FULL JOIN c ON c.bulk_id = n.bulk_id AND c.ran = n.ran AND c.word = n.word AND c.currency = n.currency
WHERE $2::uuid IS NULL AND (n.items, n.amount) IS DISTINCT FROM (c.items, c.amount::numeric)
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'bulk plan ' || b.id || ' of ' || $1 || ' says that it has ' || b.items || ' items', b.items::text, (SELECT count(*) FROM i WHERE i.bulk_id = b.id)::text FROM b WHERE $2::uuid IS NULL AND b.items <> (SELECT count(*) FROM i WHERE i.bulk_id = b.id)
UNION ALL
SELECT i.case_id, i.run_id, 'bulk plan ' || b.id || ' of ' || $1 || ': item ' || i.position || ' is ' || coalesce(nullif(i.outcome, ''), 'pending') || ', and the receipts say ' ||
  CASE WHEN i.outcome = 'done' THEN 'that the plan did nothing' ELSE 'that it was done' END,
  coalesce(nullif(i.outcome, ''), 'pending'), CASE WHEN i.outcome = 'done' THEN 'not done' ELSE 'done' END
FROM b JOIN i ON i.bulk_id = b.id
WHERE (i.outcome = 'done' OR b.state = 'done' OR b.state = 'cancelled' AND b.settled)
  AND i.outcome <> 'failed' AND (i.outcome = 'done') <>
  EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = i.case_id AND e.seq > i.seq AND e.body LIKE '%' || i.bulk_id || '%' AND e.body::json -> 'payload' ->> 'bulk' = i.bulk_id::text)
UNION ALL
SELECT i.case_id, i.run_id, 'bulk plan ' || b.id || ' of ' || $1 || ': item ' || i.position || ' is said to have made run ' || coalesce(i.new_run::text, 'none') || ', the receipts say ' || coalesce(m.made::text, 'none'),
  coalesce(i.new_run::text, 'none'), coalesce(m.made::text, 'none')
FROM b JOIN i ON i.bulk_id = b.id, LATERAL (SELECT CASE b.action WHEN 'fork' THEN (
  SELECT e.run_id FROM recourse.receipts e WHERE e.case_id = i.case_id AND e.seq > i.seq AND e.subtype = 'submitted' AND e.body LIKE '%' || i.bulk_id || '%' AND e.body::json -> 'payload' ->> 'bulk' = i.bulk_id::text
  ORDER BY e.seq LIMIT 1
) END AS made) m
WHERE i.outcome = 'done' AND i.new_run IS DISTINCT FROM m.made`

// controlMismatchSQL checks rows of a tenant, or of one case of it, that control decisions: who requested a
// cancel, who holds an attempt and since when, which payments came back, how often a rule has replayed a lineage, and the
// lookups of dead letters. A lease of no attempt that runs is orphanSQL's.
const controlMismatchSQL = `
SELECT r.case_id, r.id, 'run ' || r.id || ' is marked to be cancelled by ' || r.cancel_by || ', and no receipt says so', NULL::text, NULL::text FROM recourse.runs r
WHERE r.tenant = $1 AND r.cancel_requested AND ($2::uuid IS NULL OR r.case_id = $2)
  AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = r.id AND e.subtype IN ('cancel-requested', 'cancelled'))
UNION ALL
SELECT r.case_id, l.run_id, 'attempt ' || l.attempt || ' of run ' || l.run_id || ' is leased to ' || coalesce(nullif(l.worker, ''), '` + stored.UnnamedWorker + `') || coalesce(' of ' || nullif(l.principal, ''), '') || ' since ' || l.at || ', and no receipt says so', NULL, NULL
FROM recourse.leases l JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = l.tenant AND r.state = 'running' AND r.attempt_count = l.attempt
WHERE l.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = r.id AND e.subtype = 'attempt-started' AND e.at = l.at
  AND e.body::json -> 'payload' ->> 'attempt' = l.attempt::text AND e.body::json -> 'payload' ->> 'worker' = coalesce(nullif(l.worker, ''), '` + stored.UnnamedWorker + `') AND l.principal IN ('', e.actor))
UNION ALL
SELECT t.case_id, t.run_id, 'a return of ' || t.amount || ' with reference ' || t.reference || ' is recorded, and no receipt says so', NULL, NULL FROM recourse.returns t
WHERE t.tenant = $1 AND ($2::uuid IS NULL OR t.case_id = $2) AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = t.case_id AND e.seq = t.seq AND e.tenant = t.tenant AND e.run_id = t.run_id
  AND e.subtype = 'returned' AND e.body::json -> 'payload' ->> 'returned' = t.amount::text AND e.body::json -> 'payload' ->> 'reference' = t.reference)
UNION ALL
SELECT c.id, NULL, 'of case ' || c.id || ' ' || c.returned || ' came back, and the returns that are recorded add up to ' || t.sum, t.sum::text, c.returned::text
FROM recourse.cases c, LATERAL (SELECT coalesce(sum(t.amount), 0) AS sum FROM recourse.returns t WHERE t.case_id = c.id AND t.tenant = c.tenant) t
WHERE c.tenant = $1 AND ($2::uuid IS NULL OR c.id = $2) AND c.returned > 0 AND c.returned <> t.sum
UNION ALL
SELECT r.case_id, l.run_id, 'the lookups of run ' || l.run_id || ' of ' || $1 || ' are of an attempt that was not made, or are not in order', NULL, NULL FROM recourse.lookups l LEFT JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = l.tenant
WHERE l.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND (r.id IS NULL OR l.attempt NOT BETWEEN 1 AND r.attempt_count OR l.absent_at > l.asked_at)
UNION ALL
SELECT coalesce(d.case_id, r.case_id), coalesce(d.root, c.root), 'rule ' || coalesce(d.rule, c.rule) || ' of ' || $1 || ' is counted to have replayed the lineage of run ' || coalesce(d.root, c.root) || ' ' || coalesce(c.replays, 0) || ' times, the receipts say ' || coalesce(d.n, 0), coalesce(c.replays, 0)::text, coalesce(d.n, 0)::text
FROM (
  WITH RECURSIVE e AS MATERIALIZED (
    SELECT case_id, run_id, substr(actor, 6) AS rule FROM recourse.receipts WHERE tenant = $1 AND subtype = 'replayed' AND actor LIKE 'rule:%' AND ($2::uuid IS NULL OR case_id = $2)
  ), up AS (
    SELECT e.case_id, e.rule, r.id, r.parent_id FROM e JOIN recourse.runs r ON r.id = e.run_id
    UNION ALL
    SELECT u.case_id, u.rule, r.id, r.parent_id FROM up u JOIN recourse.runs r ON r.id = u.parent_id
  )
  SELECT case_id, id AS root, rule, count(*) AS n FROM up WHERE parent_id IS NULL GROUP BY 1, 2, 3
) d FULL JOIN (SELECT * FROM recourse.rule_replays WHERE tenant = $1) c ON c.root = d.root AND c.rule = d.rule LEFT JOIN recourse.runs r ON r.id = c.root
WHERE c.replays IS DISTINCT FROM d.n AND ($2::uuid IS NULL OR coalesce(d.case_id, r.case_id) = $2)`

// orphanSQL finds rows of a tenant, or of one case of it, that refer to a row which does not exist or is another
// tenant's: a run without its case, its operation or, while it is running, its session; a case
// without its escrow or its active run; a delta of an escrow without its case. Receipts without
// a case are not among them: the audit of the trail finds those.
//
// One statement reads everything that is written together, so that a concurrent writer does
// not seem to leave an orphan.
const orphanSQL = `
SELECT r.case_id, r.id, 'run ' || r.id || ' of ' || $1::text || ' refers to case ' || r.case_id || ', which is not there' FROM recourse.runs r
WHERE r.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = r.case_id AND c.tenant = r.tenant)
UNION ALL
SELECT c.id, NULL, 'case ' || c.id || ' of ' || $1::text || ' refers to escrow ' || c.escrow_id || ', which is not there' FROM recourse.cases c
WHERE c.tenant = $1 AND ($2::uuid IS NULL OR c.id = $2) AND c.escrow_id IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.id = c.escrow_id AND e.tenant = c.tenant)
UNION ALL
SELECT c.id, c.run_id, 'case ' || c.id || ' of ' || $1::text || ' refers to run ' || c.run_id || ', which is not there' FROM recourse.cases c
WHERE c.tenant = $1 AND ($2::uuid IS NULL OR c.id = $2) AND c.run_id IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.runs r WHERE r.id = c.run_id AND r.case_id = c.id AND r.tenant = c.tenant)
UNION ALL
SELECT r.case_id, r.id, 'run ' || r.id || ' of ' || $1::text || ' refers to operation ' || encode(r.operation_key, 'hex') || ', which is not there' FROM recourse.runs r
WHERE r.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND r.operation_key IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.operations o WHERE o.key = r.operation_key AND o.case_id = r.case_id)
UNION ALL
SELECT d.case_id, NULL, 'delta ' || d.delta || ' of case ' || d.case_id || ' of ' || $1::text || ' refers to escrow ' || d.escrow_id || ', which is not there' FROM recourse.escrow_deltas d JOIN recourse.escrows e ON e.id = d.escrow_id
WHERE e.tenant = $1 AND ($2::uuid IS NULL OR d.case_id = $2) AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = d.case_id AND c.escrow_id = d.escrow_id AND c.tenant = e.tenant)
UNION ALL
SELECT r.case_id, r.id, 'run ' || r.id || ', which is running, of ' || $1 || ' refers to session ' || coalesce(r.session_id::text, 'none') || ', which is not there' FROM recourse.runs r
WHERE r.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND r.live AND NOT r.remote AND r.state = 'running' AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE s.id = r.session_id)
UNION ALL
SELECT r.case_id, r.id, 'remote run ' || r.id || ', which is running, of ' || $1 || ' has no lease of its attempt' FROM recourse.runs r
WHERE r.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND r.live AND r.remote AND r.state = 'running' AND NOT EXISTS (SELECT FROM recourse.leases l WHERE l.run_id = r.id AND l.attempt = r.attempt_count AND l.tenant = r.tenant)
UNION ALL
SELECT r.case_id, l.run_id, 'the lease of run ' || l.run_id || ' of ' || $1 || ' is of no attempt that runs' FROM recourse.leases l LEFT JOIN recourse.runs r ON r.id = l.run_id
WHERE l.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND NOT coalesce(r.remote AND r.state = 'running' AND r.attempt_count = l.attempt AND r.tenant = l.tenant, false)`

// orphanOperationSQL finds operations without a case, which would have named their tenant.
const orphanOperationSQL = `SELECT o.case_id, NULL, 'operation ' || encode(o.key, 'hex') || ' refers to case ' || o.case_id || ', which is not there' FROM recourse.operations o
WHERE NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = o.case_id)`

// handlerMismatchSQL finds the dead letters of a tenant, or of one case of it, whose receipts do not name their
// handler, or name one that is not stored as theirs, or whose handler does not name them.
const handlerMismatchSQL = `
SELECT d.case_id, h.letter, 'run ' || h.letter || ' and the run that is said to handle its letter do not refer to each other' FROM recourse.handlers h
  LEFT JOIN recourse.runs d ON d.id = h.letter AND d.tenant = h.tenant AND d.state = 'dead_lettered'
  LEFT JOIN recourse.runs r ON r.id = h.run AND r.tenant = h.tenant AND r.retry_key = 'dlq:' || h.letter
WHERE h.tenant = $1 AND ($2::uuid IS NULL OR $2 IN (d.case_id, r.case_id)) AND (d.id IS NULL OR r.id IS NULL OR NOT EXISTS (
  SELECT FROM recourse.receipts e WHERE e.case_id = d.case_id AND e.run_id = d.id AND e.subtype = 'dead-lettered'
    AND e.body::json -> 'payload' ->> 'new_run' = h.run::text))
UNION ALL
SELECT d.case_id, d.id, 'run ' || d.id || ' began the handler of its letter when it died, by its receipts, and none is stored' FROM recourse.runs d
WHERE d.tenant = $1 AND d.dead_at IS NOT NULL AND ($2::uuid IS NULL OR d.case_id = $2) AND NOT EXISTS (SELECT FROM recourse.handlers h WHERE h.letter = d.id AND h.tenant = d.tenant)
  AND EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = d.case_id AND e.run_id = d.id AND e.subtype = 'dead-lettered' AND e.body LIKE '%"new_run"%' AND e.body::json -> 'payload' ->> 'new_run' IS NOT NULL)`

// annotationsWithoutReceiptSQL finds the annotations of a tenant, or of one case of it, that no receipt
// records.
const annotationsWithoutReceiptSQL = `SELECT r.case_id, k.run_id, 'letter ' || k.run_id || ' of ' || $1::text || ' is held, marked or announced, and no receipt says so'
FROM recourse.annotations k LEFT JOIN recourse.runs r ON r.id = k.run_id AND r.tenant = k.tenant
WHERE k.tenant = $1 AND ($2::uuid IS NULL OR r.case_id = $2) AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = k.run_id AND e.subtype = ANY($3::text[]))`

// indexMismatchSQL finds the runs of a tenant, or of one case of it, whose row in the list of
// dead letters differs or is missing, the rows of runs that are none, and groups and days
// with wrong counts.
//
// The list follows the order of events, so cases with receipts that are not indexed
// yet are left out: they are no mismatch. The query reads one snapshot.
var indexMismatchSQL = stored.Unprojected + `, dead AS (
  SELECT r.*, c.run_id AS holder, c.kind, c.asked, CASE r.letter WHEN 'open' THEN c.reserved ELSE 0 END AS risk, CASE WHEN r.remote THEN r.target ELSE r.family END AS job_type,
    CASE c.kind WHEN 'settlement' THEN c.subject ELSE r.retry_key END AS transaction, c.submission, c.adjudication, coalesce(e.reference, '') AS escrow, coalesce(e.currency, '') AS currency, coalesce(k.held, false) AS held
  FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id LEFT JOIN recourse.escrows e ON e.id = c.escrow_id LEFT JOIN recourse.annotations k ON k.run_id = r.id
  WHERE r.tenant = $1 AND r.dead_at IS NOT NULL AND r.letter <> 'purged' AND r.case_id NOT IN (SELECT id FROM waiting) AND ($2::uuid IS NULL OR r.case_id = $2)
), listed AS (
  SELECT d.case_id, d.id, l.run_id IS NOT NULL AS found, ` + describeLetterSQL("s.tenant, s.status, s.family, s.queue, s.job_type, s.reason_code, s.class, s.error_type, l.dead_at, l.attempts, l.at_risk, l.transaction, l.escrow, s.currency, s.held, l.amount, l.submission, s.outcome") + ` AS stored,
    CASE WHEN d.kind = 'settlement' AND d.id <> d.holder THEN ` + describeLetterSQL(ofDeadRun+", l.amount, l.submission, s.outcome") + ` -- its request had them, not its case
      ELSE ` + describeLetterSQL(ofDeadRun+", CASE d.kind WHEN 'settlement' THEN d.asked ELSE l.amount END, d.submission, d.adjudication") + ` END AS expected
  FROM dead d LEFT JOIN recourse.letters l ON l.run_id = d.id AND l.tenant = d.tenant LEFT JOIN recourse.facet_groups s ON s.id = l.facet_group
)
SELECT case_id, id, 'run ' || id || CASE WHEN found THEN ' is in the list of letters with other columns' ELSE ' is not in the list of letters' END, CASE WHEN found THEN stored END, CASE WHEN found THEN expected END
FROM listed WHERE NOT found OR stored <> expected
UNION ALL
SELECT r.case_id, l.run_id, 'run ' || l.run_id || ' is in the list of letters, and is none', NULL, NULL FROM recourse.letters l LEFT JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = l.tenant
WHERE l.tenant = $1 AND (r.id IS NULL OR r.dead_at IS NULL OR r.letter = 'purged') AND (r.case_id IS NULL OR r.case_id NOT IN (SELECT id FROM waiting)) AND ($2::uuid IS NULL OR r.case_id = $2)
UNION ALL
SELECT NULL, NULL, 'the list of letters counts ' || s.letters || ' that are ' || s.status || ', of family ' || s.family || ', queue ' || s.queue || ', reason ' || s.reason_code || ', class ' || coalesce(nullif(s.class, ''), 'none')
  || ' and error type ' || coalesce(nullif(s.error_type, ''), 'none') || ', with ' || s.at_risk || ' at risk; there are ' || d.n || ', with ' || d.risk,
  s.letters || ' letters, ' || s.at_risk || ' at risk, ' || s.attempts || ' attempts', d.n || ' letters, ' || d.risk || ' at risk, ' || d.tries || ' attempts'
FROM recourse.facet_groups s JOIN (` + stored.FacetGroupCounts + `) d ON d.id = s.id WHERE $2::uuid IS NULL AND ` + stored.FacetGroupDiffers + `
UNION ALL
SELECT NULL, NULL, 'the list of letters counts ' || coalesce(d.letters, 0) || ' of facet group ' || d.facet_group || ' that died on ' || date '1970-01-01' + d.day || ', with ' || coalesce(d.at_risk, 0)
  || ' at risk; there are ' || coalesce(d.n, 0) || ', with ' || coalesce(d.risk, 0), d.letters || ' letters, ' || d.at_risk || ' at risk, ' || d.attempts || ' attempts', d.n || ' letters, ' || d.risk || ' at risk, ' || d.tries || ' attempts'
FROM (` + stored.FacetGroupDayDiffers + `) d WHERE $2::uuid IS NULL
ORDER BY 3`

// ofDeadRun are the first columns of describeLetterSQL as they follow from the run.
const ofDeadRun = "d.tenant, d.letter, d.family, d.queue, d.job_type, d.reason, d.class, d.error_type, d.dead_at, d.attempt_count, d.risk, d.transaction, d.escrow, d.currency, d.held"

// describeLetterSQL returns SQL that describes the index row of a letter, from its columns.
func describeLetterSQL(columns string) string {
	return `format('letter of %L, %L, family %L, queue %L, job type %L, reason %L, class %L, error type %L, died %s, attempts %s, at risk %s, transaction %L, escrow %L, currency %L, held %s, amount %s, submission %L, outcome %L', ` + columns + `)`
}

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
