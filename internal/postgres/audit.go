package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// BreakerSubjectPrefix begins the subject of the case of a circuit breaker.
const BreakerSubjectPrefix = "breaker:"

// Operations is a case that has receipts but no run, with the rows that its receipts are
// about, all at one moment.
type Operations struct {
	Case    receipts.CaseID
	Subject string
	Head    receipts.Head
	Trail   []receipts.Receipt

	Breaker   *AuditedBreaker // if the case is that of a breaker and its row exists
	Rules     []Rule          // if the case is the rule log: all rules, also deleted ones
	BulkPlans []BulkPlan      // if the case is the bulk log
}

// AuditedBreaker is a circuit breaker, with what its trail has last recorded.
type AuditedBreaker struct {
	background.Breaker
	RecordedOpen bool // the trail records the breaker over all tenants as open
}

// WithTrail reads a tenant's case without runs. found is false if there is none.
func (j *OperationLogs) WithTrail(ctx context.Context, tenant string, id receipts.CaseID) (o Operations, found bool, err error) {
	tx, err := j.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return o, false, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	var link []byte
	err = tx.QueryRowContext(ctx, `SELECT subject, last_seq, last_link FROM recourse.cases WHERE tenant = $1 AND id = $2 AND kind = 'operations'`, tenant, id.String()).Scan(&o.Subject, &o.Head.Seq, &link)
	if errors.Is(err, sql.ErrNoRows) {
		return o, false, nil
	}
	if err != nil {
		return o, false, unavailable(err)
	}
	o.Case = id
	copy(o.Head.Link[:], link)
	if o.Trail, err = selectTrail(ctx, tx, tenant, id); err != nil {
		return o, false, err
	}
	return o, true, unavailableOrNil(o.readRows(ctx, tx, tenant))
}

// readRows reads the rows that the receipts of the case are about.
func (o *Operations) readRows(ctx context.Context, tx *sqlx.Tx, tenant string) error {
	switch {
	case strings.HasPrefix(o.Subject, BreakerSubjectPrefix):
		var rows []breakerRow
		if err := tx.SelectContext(ctx, &rows, breakerSQL+`WHERE case_id = $1`, o.Case.String()); err != nil || len(rows) == 0 {
			return err
		}
		b, err := rows[0].breaker()
		o.Breaker = &AuditedBreaker{b, rows[0].RecordedOpening > rows[0].RecordedClosing}
		return err
	case o.Subject == string(RuleLog):
		if err := tx.SelectContext(ctx, &o.Rules, ruleSQL+`WHERE tenant = $1 AND version > 0 ORDER BY name`, tenant); err != nil {
			return err
		}
	case o.Subject == string(BulkLog):
		var rows []bulkPlanRow
		if err := tx.SelectContext(ctx, &rows, bulkPlanSQL+`WHERE tenant = $1 ORDER BY id`, tenant); err != nil {
			return err
		}
		for i := range rows {
			o.BulkPlans = append(o.BulkPlans, rows[i].plan())
		}
	}
	return nil
}

// operationMismatchSQL compares policies, breakers, rules, bulk plans and operation logs
// with the cases of their receipts. It finds one without the other, and policies whose
// version is not that of their last receipt.
const operationMismatchSQL = `
WITH c AS MATERIALIZED (SELECT id, subject, last_seq FROM recourse.cases WHERE tenant = $1 AND kind = 'operations')
SELECT c.id, NULL::uuid, 'case ' || c.id || ' of ' || $1::text || ' tells of ' || c.subject || ', which is not there', NULL::text, NULL::text FROM c
WHERE c.subject LIKE 'policy:%' AND NOT EXISTS (SELECT FROM recourse.policies p WHERE p.case_id = c.id)
   OR c.subject LIKE 'breaker:%' AND NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.case_id = c.id)
   OR c.subject = ANY($2) AND NOT EXISTS (SELECT FROM recourse.operation_logs r WHERE r.tenant = $1 AND r.subject = c.subject AND r.case_id = c.id)
UNION ALL
SELECT c.id, NULL::uuid, 'the policy of family ' || p.family || ' of ' || $1 || ' is at version ' || p.version || ', its last receipt is ' || c.last_seq, p.version::text, c.last_seq::text
FROM recourse.policies p JOIN c ON c.id = p.case_id WHERE p.tenant = $1 AND p.version <> c.last_seq
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'the circuit breaker of ' || k.target || ' for ' || coalesce(nullif(k.tenant, ''), 'all tenants') || ' was moved, and no receipt says so', NULL, NULL
FROM recourse.circuit_breakers k WHERE k.tenant = CASE $1 WHEN '*' THEN '' ELSE $1 END AND (k.version > 0 OR k.recorded_opening > 0 OR k.state <> 'closed') AND NOT EXISTS (SELECT FROM c WHERE c.id = k.case_id)
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'rule ' || u.name || ' of ' || $1 || ' was made, and no receipt says so', NULL, NULL FROM recourse.rules u
WHERE u.tenant = $1 AND u.version > 0 AND NOT EXISTS (SELECT FROM c WHERE c.subject = 'rules')
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'bulk plan ' || b.id || ' of ' || $1 || ' was started, and no receipt says so', NULL, NULL FROM recourse.bulks b
WHERE b.tenant = $1 AND b.started_at IS NOT NULL AND NOT EXISTS (SELECT FROM c WHERE c.subject = 'bulks')
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'the register ' || r.subject || ' of ' || $1 || ' names case ' || r.case_id || ', which is not there', NULL, NULL FROM recourse.operation_logs r
WHERE r.tenant = $1 AND NOT EXISTS (SELECT FROM c WHERE c.id = r.case_id)`

// Audit reads what must agree with the trail.
type Audit struct {
	*shared
}

// EachOperationMismatch visits the rows of a tenant that no receipt can record, and the
// receipts of rows that do not exist.
func (a *Audit) EachOperationMismatch(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	return a.eachDiscrepancy(ctx, visit, operationMismatchSQL, tenant, operationLogs)
}

// bulkMismatchSQL compares the counts of a tenant's bulk plans with their items, and the
// items with the receipts that the plan wrote after the head it was planned at. Failed
// items are not compared with receipts: they may have been done after all.
const bulkMismatchSQL = `
WITH b AS MATERIALIZED (SELECT id, items, state, settled FROM recourse.bulks WHERE tenant = $1),
i AS MATERIALIZED (
  SELECT i.bulk_id, i.position, i.case_id, i.run_id, i.outcome, i.gate, i.currency, i.amount, i.seq FROM recourse.bulk_items i JOIN b ON b.id = i.bulk_id
), n AS (
  SELECT bulk_id, true AS ran, outcome AS word, currency, count(*) AS items, sum(amount) AS amount FROM i WHERE outcome <> '' GROUP BY 1, 3, 4
  UNION ALL
  SELECT bulk_id, false, gate, currency, count(*), sum(amount) FROM i GROUP BY 1, 3, 4
), c AS (
  SELECT c.* FROM recourse.bulk_counts c JOIN b ON b.id = c.bulk_id WHERE c.items <> 0 AND c.word NOT IN ('` + BulkScanned + `', '` + BulkUndecided + `')
)
SELECT NULL::uuid, NULL::uuid, 'bulk plan ' || coalesce(n.bulk_id, c.bulk_id) || ' of ' || $1::text || ' counts ' || coalesce(c.items, 0) || ' items ' || CASE WHEN coalesce(n.ran, c.ran) THEN 'ended as ' ELSE 'planned as ' END
  || coalesce(nullif(coalesce(n.word, c.word), ''), 'ready') || ', and has ' || coalesce(n.items, 0),
  coalesce(c.items, 0) || ' items, ' || coalesce(c.amount, 0) || ' in minor units', coalesce(n.items, 0) || ' items, ' || coalesce(n.amount, 0) || ' in minor units'
FROM n FULL JOIN c ON c.bulk_id = n.bulk_id AND c.ran = n.ran AND c.word = n.word AND c.currency = n.currency
WHERE (n.items, n.amount) IS DISTINCT FROM (c.items, c.amount::numeric)
UNION ALL
SELECT NULL::uuid, NULL::uuid, 'bulk plan ' || b.id || ' of ' || $1 || ' says that it has ' || b.items || ' items', b.items::text, (SELECT count(*) FROM i WHERE i.bulk_id = b.id)::text FROM b WHERE b.items <> (SELECT count(*) FROM i WHERE i.bulk_id = b.id)
UNION ALL
SELECT i.case_id, i.run_id, 'bulk plan ' || b.id || ' of ' || $1 || ': item ' || i.position || ' is ' || coalesce(nullif(i.outcome, ''), 'pending') || ', and the receipts say ' ||
  CASE WHEN i.outcome = 'done' THEN 'that the plan did nothing' ELSE 'that it was done' END,
  coalesce(nullif(i.outcome, ''), 'pending'), CASE WHEN i.outcome = 'done' THEN 'not done' ELSE 'done' END
FROM b JOIN i ON i.bulk_id = b.id
WHERE (i.outcome = 'done' OR b.state = 'done' OR b.state = 'cancelled' AND b.settled)
  AND i.outcome <> 'failed' AND (i.outcome = 'done') <>
  EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = i.case_id AND e.seq > i.seq AND e.body LIKE '%' || i.bulk_id || '%' AND e.body::json -> 'payload' ->> 'bulk' = i.bulk_id::text)`

// EachMismatch visits what is wrong with the items of a tenant's bulk plans.
func (p *PlanStore) EachMismatch(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	return p.eachDiscrepancy(ctx, visit, bulkMismatchSQL, tenant)
}

// controlMismatchSQL checks rows of a tenant that control decisions: who requested a
// cancel, how often a rule has replayed a job, and the lookups of dead letters.
const controlMismatchSQL = `
SELECT r.case_id, r.id, 'run ' || r.id || ' is marked to be cancelled by ' || r.cancel_by || ', and no receipt says so', NULL::text, NULL::text FROM recourse.runs r
WHERE r.tenant = $1 AND r.cancel_requested AND NOT EXISTS (SELECT FROM recourse.cancels_before_receipts b WHERE b.run_id = r.id)
  AND NOT EXISTS (SELECT FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = r.id AND e.subtype IN ('cancel-requested', 'cancelled'))
UNION ALL
SELECT r.case_id, l.run_id, 'what is known of asking about letter ' || l.run_id || ' of ' || $1 || ' is from before it died, or is not in order', NULL, NULL FROM recourse.lookups l LEFT JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = l.tenant
WHERE l.tenant = $1 AND (r.id IS NULL OR r.dead_at IS NULL OR l.asked_at < r.dead_at - interval '5 s' OR l.absent_at < r.dead_at - interval '5 s' OR l.absent_at > l.asked_at)
UNION ALL
SELECT coalesce(d.case_id, r.case_id), coalesce(d.root, c.root), 'rule ' || coalesce(d.rule, c.rule) || ' of ' || $1 || ' is counted to have replayed job ' || coalesce(d.root, c.root) || ' ' || coalesce(c.replays, 0) || ' times, the receipts say ' || coalesce(d.n, 0), coalesce(c.replays, 0)::text, coalesce(d.n, 0)::text
FROM (
  WITH RECURSIVE e AS MATERIALIZED (
    SELECT case_id, run_id, substr(actor, 6) AS rule FROM recourse.receipts WHERE tenant = $1 AND subtype = 'replayed' AND actor LIKE 'rule:%'
  ), up AS (
    SELECT e.case_id, e.rule, r.id, r.parent_id FROM e JOIN recourse.runs r ON r.id = e.run_id
    UNION ALL
    SELECT u.case_id, u.rule, r.id, r.parent_id FROM up u JOIN recourse.runs r ON r.id = u.parent_id
  )
  SELECT case_id, id AS root, rule, count(*) AS n FROM up WHERE parent_id IS NULL GROUP BY 1, 2, 3
) d FULL JOIN (SELECT * FROM recourse.rule_replays WHERE tenant = $1) c ON c.root = d.root AND c.rule = d.rule LEFT JOIN recourse.runs r ON r.id = c.root
WHERE c.replays IS DISTINCT FROM d.n`

// EachControlMismatch visits the rows of a tenant that control decisions and contradict the
// receipts.
func (a *Audit) EachControlMismatch(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	return a.eachDiscrepancy(ctx, visit, controlMismatchSQL, tenant)
}

// operationLogs are the subjects of all operation logs.
var operationLogs = pq.StringArray{string(KeyLog), string(RefusalLog), string(BulkLog), string(RuleLog), string(IndexLog), string(PeopleLog)}

// One statement reads everything that is written together, so that a concurrent writer does
// not seem to leave an orphan.
const orphanSQL = `
SELECT r.case_id, r.id, 'run ' || r.id || ' of ' || $1::text || ' refers to case ' || r.case_id || ', which is not there' FROM recourse.runs r
WHERE r.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = r.case_id AND c.tenant = r.tenant)
UNION ALL
SELECT c.id, NULL, 'case ' || c.id || ' of ' || $1::text || ' refers to escrow ' || c.escrow_id || ', which is not there' FROM recourse.cases c
WHERE c.tenant = $1 AND c.escrow_id IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.id = c.escrow_id AND e.tenant = c.tenant)
UNION ALL
SELECT c.id, c.run_id, 'case ' || c.id || ' of ' || $1::text || ' refers to run ' || c.run_id || ', which is not there' FROM recourse.cases c
WHERE c.tenant = $1 AND c.run_id IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.runs r WHERE r.id = c.run_id AND r.case_id = c.id AND r.tenant = c.tenant)
UNION ALL
SELECT r.case_id, r.id, 'run ' || r.id || ' of ' || $1::text || ' refers to operation ' || encode(r.operation_key, 'hex') || ', which is not there' FROM recourse.runs r
WHERE r.tenant = $1 AND r.operation_key IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.operations o WHERE o.key = r.operation_key AND o.case_id = r.case_id)
UNION ALL
SELECT d.case_id, NULL, 'delta ' || d.delta || ' of case ' || d.case_id || ' of ' || $1::text || ' refers to escrow ' || d.escrow_id || ', which is not there' FROM recourse.escrow_deltas d JOIN recourse.escrows e ON e.id = d.escrow_id
WHERE e.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = d.case_id AND c.escrow_id = d.escrow_id AND c.tenant = e.tenant)
UNION ALL
SELECT r.case_id, r.id, 'run ' || r.id || ', which is running, of ' || $1 || ' refers to session ' || coalesce(r.session_id::text, 'none') || ', which is not there' FROM recourse.runs r
WHERE r.tenant = $1 AND r.live AND r.state = 'running' AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE s.id = r.session_id)`

// EachOrphan visits the rows of a tenant that refer to a row which does not exist or is
// another tenant's:
//   - a run without its case, its operation or, while it is running, its session;
//   - a case without its escrow or its active run;
//   - a delta of an escrow without its case.
//
// Receipts without a case are not among them: the audit of the trail finds those.
func (a *Audit) EachOrphan(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	return a.eachDiscrepancy(ctx, visit, orphanSQL, tenant)
}

const orphanOperationSQL = `SELECT o.case_id, NULL, 'operation ' || encode(o.key, 'hex') || ' refers to case ' || o.case_id || ', which is not there' FROM recourse.operations o
WHERE NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = o.case_id)`

// EachOrphanOperation visits the operations without a case. The case would have named their
// tenant.
func (a *Audit) EachOrphanOperation(ctx context.Context, visit func(Discrepancy)) error {
	return a.eachDiscrepancy(ctx, visit, orphanOperationSQL)
}

// Discrepancy is one finding of an audit: the case and run it is about, as far as they are
// known, and what is wrong.
type Discrepancy struct {
	Case    receipts.CaseID
	Run     receipts.RunID
	Message string
	// Stored and Expected are what is stored and what should be, if two values were
	// compared.
	Stored, Expected string
}

// eachDiscrepancy visits what a query finds: case, run and message, of which the first two
// may be NULL, then stored and expected value if the query has these columns. The query
// sees one moment; rows are not kept.
func (s *shared) eachDiscrepancy(ctx context.Context, visit func(Discrepancy), query string, args ...any) error {
	return s.eachRow(ctx, func(rows *sql.Rows) error {
		var caseID, run uuid.NullUUID
		var stored, expected sql.NullString
		var d Discrepancy
		dest := []any{&caseID, &run, &d.Message, &stored, &expected}
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if err := rows.Scan(dest[:len(columns)]...); err != nil {
			return err
		}
		d.Case, d.Run, d.Stored, d.Expected = receipts.CaseID(caseID.UUID), receipts.RunID(run.UUID), stored.String, expected.String
		visit(d)
		return nil
	}, query, args...)
}

// eachRow reads the rows of a query one by one.
func (s *shared) eachRow(ctx context.Context, read func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return unavailable(err)
		}
	}
	return unavailableOrNil(rows.Err())
}

// Count counts the cases of tenants.
func (c *Cases) Count(ctx context.Context, tenants []string) (n int, err error) {
	err = c.readDB.QueryRowContext(ctx, `SELECT count(*) FROM recourse.cases WHERE tenant = ANY($1) AND kind <> 'operations'`, pq.StringArray(tenants)).Scan(&n)
	return n, unavailableOrNil(err)
}

// TenantsOf returns by case the tenants that have the case or its first receipt.
func (c *Cases) TenantsOf(ctx context.Context, ids []receipts.CaseID) (map[receipts.CaseID][]string, error) {
	texts := make(pq.StringArray, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	out := map[receipts.CaseID][]string{}
	err := c.eachRow(ctx, func(rows *sql.Rows) error {
		var caseID uuid.UUID
		var tenant string
		if err := rows.Scan(&caseID, &tenant); err != nil {
			return err
		}
		out[receipts.CaseID(caseID)] = append(out[receipts.CaseID(caseID)], tenant)
		return nil
	}, `SELECT id, tenant FROM recourse.cases WHERE id = ANY($1::uuid[]) UNION SELECT case_id, tenant FROM recourse.receipts WHERE case_id = ANY($1::uuid[]) AND seq = 1 ORDER BY 2`, texts)
	return out, err
}

// optionalCase returns a parameter that selects one case; nil for the zero id selects none
// in particular.
func optionalCase(id receipts.CaseID) *string {
	if id.IsZero() {
		return nil
	}
	s := id.String()
	return &s
}
