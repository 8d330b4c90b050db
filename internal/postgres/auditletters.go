package postgres

import (
	"context"

	"github.com/recourse-dev/recourse/receipts"
)

// The list of letters follows the order of events, so that what has not been taken up yet
// is no fault: cases that are told of behind it are left out. All is seen at one moment.
var indexMismatchSQL = `
WITH waiting AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log e, unnest(e.case_ids) AS u(id) WHERE e.tenant = $1 AND e.last > (SELECT last FROM recourse.projected WHERE name = 'letters')
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id) WHERE o.tenant = $1
), dead AS (
  SELECT r.*, c.run_id AS holder, c.kind, c.asked, CASE r.letter WHEN 'open' THEN c.reserved ELSE 0 END AS risk
  FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
  WHERE r.tenant = $1 AND r.dead_at IS NOT NULL AND r.letter <> 'purged' AND r.case_id NOT IN (SELECT id FROM waiting) AND ($2::uuid IS NULL OR r.case_id = $2)
)
SELECT d.case_id, d.id, 'run ' || d.id || CASE WHEN l.run_id IS NULL THEN ' is not in the list of letters' ELSE ' is in the list of letters with other columns' END,
  CASE WHEN l.run_id IS NOT NULL THEN ` + describeLetterSQL("s.standing, s.family, s.queue, s.reason_code, s.class, s.error_type, l.dead_at, l.attempts, l.at_risk, l.amount") + ` END,
  CASE WHEN l.run_id IS NOT NULL THEN ` + describeLetterSQL("d.letter, d.family, d.queue, d.reason, d.class, d.error_type, d.dead_at, d.attempt_count, d.risk, CASE WHEN d.kind = 'settlement' AND d.id = d.holder THEN d.asked ELSE l.amount END") + ` END
FROM dead d LEFT JOIN recourse.letters l ON l.run_id = d.id AND l.tenant = d.tenant LEFT JOIN recourse.letter_shapes s ON s.id = l.shape
WHERE l.run_id IS NULL OR (s.standing, s.family, s.queue, s.reason_code, s.class, s.error_type) IS DISTINCT FROM (d.letter, d.family, d.queue, d.reason, d.class, d.error_type)
  OR l.dead_at <> d.dead_at OR l.attempts <> d.attempt_count OR l.at_risk <> d.risk OR d.kind = 'settlement' AND d.id = d.holder AND l.amount <> d.asked
UNION ALL
SELECT r.case_id, l.run_id, 'run ' || l.run_id || ' is in the list of letters, and is none', NULL, NULL FROM recourse.letters l LEFT JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = l.tenant
WHERE l.tenant = $1 AND (r.id IS NULL OR r.dead_at IS NULL OR r.letter = 'purged') AND (r.case_id IS NULL OR r.case_id NOT IN (SELECT id FROM waiting)) AND ($2::uuid IS NULL OR r.case_id = $2)
UNION ALL
SELECT NULL, NULL, 'the list of letters counts ' || s.letters || ' that are ' || s.standing || ', of family ' || s.family || ', queue ' || s.queue || ', reason ' || s.reason_code || ', class ' || coalesce(nullif(s.class, ''), 'none')
  || ' and error type ' || coalesce(nullif(s.error_type, ''), 'none') || ', with ' || s.at_risk || ' at risk; there are ' || d.n || ', with ' || d.risk,
  s.letters || ' letters, ' || s.at_risk || ' at risk, ' || s.attempts || ' attempts', d.n || ' letters, ' || d.risk || ' at risk, ' || d.tries || ' attempts'
FROM recourse.letter_shapes s JOIN (` + groupCountsSQL + `) d ON d.id = s.id WHERE $2::uuid IS NULL AND ` + groupDiffersSQL + `
ORDER BY 3`

// describeLetterSQL is the SQL for the words for what a list shows of a letter, from its columns.
func describeLetterSQL(columns string) string {
	return `format('letter %s, family %s, queue %s, reason %s, class %s, error type %s, died %s, attempts %s, at risk %s, amount %s', ` + columns + `)`
}

// EachIndexMismatch gives the runs of a tenant, or of one case of it, that the list of letters
// shows otherwise than they are, or not at all, or though they are no letters.
func (j *Journal) EachIndexMismatch(ctx context.Context, tenant string, caseID receipts.CaseID, visit func(Discrepancy)) error {
	return j.eachDiscrepancy(ctx, visit, indexMismatchSQL, tenant, optionalCase(caseID))
}
