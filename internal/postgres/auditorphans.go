package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

// Orphan is a row that refers to another which is not there, or is another tenant's.
// Receipts without a case are none: whoever walks the trail meets them.
type Orphan struct{ What, Misses string }

// Everything that is written together is seen together by one statement, so that nobody
// who writes meanwhile seems to leave an orphan.
const orphanSQL = `
(SELECT 'run ' || r.id, 'case ' || r.case_id FROM recourse.runs r
 WHERE r.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = r.case_id AND c.tenant = r.tenant) LIMIT 1)
UNION ALL
(SELECT 'case ' || c.id, 'escrow ' || c.escrow_id FROM recourse.cases c
 WHERE c.tenant = $1 AND c.escrow_id IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.id = c.escrow_id AND e.tenant = c.tenant) LIMIT 1)
UNION ALL
(SELECT 'case ' || c.id, 'run ' || c.run_id FROM recourse.cases c
 WHERE c.tenant = $1 AND c.run_id IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.runs r WHERE r.id = c.run_id AND r.case_id = c.id AND r.tenant = c.tenant) LIMIT 1)
UNION ALL
(SELECT 'run ' || r.id, 'operation ' || encode(r.operation_key, 'hex') FROM recourse.runs r
 WHERE r.tenant = $1 AND r.operation_key IS NOT NULL AND NOT EXISTS (SELECT FROM recourse.operations o WHERE o.key = r.operation_key AND o.case_id = r.case_id) LIMIT 1)
UNION ALL
(SELECT 'delta ' || d.delta || ' of case ' || d.case_id, 'escrow ' || d.escrow_id FROM recourse.escrow_deltas d JOIN recourse.escrows e ON e.id = d.escrow_id
 WHERE e.tenant = $1 AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = d.case_id AND c.escrow_id = d.escrow_id AND c.tenant = e.tenant) LIMIT 1)
UNION ALL
(SELECT 'run ' || r.id || ', which is running,', 'session ' || coalesce(r.session_id::text, 'none') FROM recourse.runs r
 WHERE r.tenant = $1 AND r.live AND r.state = 'running' AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE s.id = r.session_id) LIMIT 1)
LIMIT 1`

// Orphan finds a run of a tenant without its case, its operation or, while it is running, its session, a case without its
// escrow or its present run, or a delta of an escrow without its case; nil when there is none.
func (j *Journal) Orphan(ctx context.Context, tenant string) (*Orphan, error) {
	var found Orphan
	err := j.reads.QueryRowContext(ctx, orphanSQL, tenant).Scan(&found.What, &found.Misses)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, unavailable(err)
	}
	return &found, nil
}

const orphanOperationSQL = `SELECT encode(o.key, 'hex'), o.case_id FROM recourse.operations o
WHERE NOT EXISTS (SELECT FROM recourse.cases c WHERE c.id = o.case_id) LIMIT 1`

// OrphanOperation finds an operation without its case, which says whose it would be; nil
// when there is none.
func (j *Journal) OrphanOperation(ctx context.Context) (*Orphan, error) {
	var key string
	var kase uuid.UUID
	err := j.reads.QueryRowContext(ctx, orphanOperationSQL).Scan(&key, &kase)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, unavailable(err)
	}
	return &Orphan{"operation " + key, fmt.Sprintf("case %s", receipts.CaseID(kase))}, nil
}
