package postgres

import "context"

// Everything that is written together is seen together by one statement, so that nobody
// who writes meanwhile seems to leave an orphan.
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

// EachOrphan gives the rows of a tenant that refer to another which is not there, or is
// another tenant's: a run without its case, its operation or, while it is running, its session,
// a case without its escrow or its present run, a delta of an escrow without its case.
// Receipts without a case are none: whoever walks the trail meets them.
func (j *Journal) EachOrphan(ctx context.Context, tenant string, visit func(Discrepancy)) error {
	return j.eachDiscrepancy(ctx, visit, orphanSQL, tenant)
}

const orphanOperationSQL = `SELECT o.case_id, NULL, 'operation ' || encode(o.key, 'hex') || ' refers to case ' || o.case_id || ', which is not there' FROM recourse.operations o
WHERE NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = o.case_id)`

// EachOrphanOperation gives the operations without their case, which says whose they would be.
func (j *Journal) EachOrphanOperation(ctx context.Context, visit func(Discrepancy)) error {
	return j.eachDiscrepancy(ctx, visit, orphanOperationSQL)
}
