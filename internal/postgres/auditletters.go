package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// The list of letters follows the order of events, so that what has not been taken up yet
// is no fault: cases that are told of behind it are left out. All is seen at one moment.
const unlistedSQL = `
WITH waiting AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log e, unnest(e.case_ids) AS u(id) WHERE e.tenant = $1 AND e.last > (SELECT last FROM recourse.projected WHERE name = 'letters')
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id) WHERE o.tenant = $1
), dead AS (
  SELECT r.*, c.run_id AS holder, c.kind, c.asked, CASE r.letter WHEN 'open' THEN c.reserved ELSE 0 END AS risk
  FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
  WHERE r.tenant = $1 AND r.dead_at IS NOT NULL AND r.letter <> 'purged' AND r.case_id NOT IN (SELECT id FROM waiting)
)
(SELECT d.id, CASE WHEN l.run_id IS NULL THEN 'is not in the list of letters' ELSE 'is in the list of letters with other columns' END
 FROM dead d LEFT JOIN recourse.letters l ON l.run_id = d.id AND l.tenant = d.tenant LEFT JOIN recourse.letter_shapes s ON s.id = l.shape
 WHERE l.run_id IS NULL OR (s.standing, s.family, s.queue, s.reason_code, s.class, s.error_type) IS DISTINCT FROM (d.letter, d.family, d.queue, d.reason, d.class, d.error_type)
   OR l.dead_at <> d.dead_at OR l.attempts <> d.attempt_count OR l.at_risk <> d.risk OR d.kind = 'settlement' AND d.id = d.holder AND l.amount <> d.asked LIMIT 1)
UNION ALL
(SELECT l.run_id, 'is in the list of letters, and is none' FROM recourse.letters l LEFT JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = l.tenant
 WHERE l.tenant = $1 AND (r.id IS NULL OR r.dead_at IS NULL OR r.letter = 'purged') AND (r.case_id IS NULL OR r.case_id NOT IN (SELECT id FROM waiting)) LIMIT 1)
LIMIT 1`

// Unlisted finds a run of a tenant that the list of letters shows otherwise than it is, or
// not at all, or though it is no letter; what says which. It is empty when there is none.
func (j *Journal) Unlisted(ctx context.Context, tenant string) (what string, err error) {
	var run uuid.UUID
	err = j.reads.QueryRowContext(ctx, unlistedSQL, tenant).Scan(&run, &what)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", unavailable(err)
	}
	return fmt.Sprintf("run %s %s", run, what), nil
}
