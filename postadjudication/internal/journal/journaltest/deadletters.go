package journaltest

import (
	"database/sql"
	"testing"

	"github.com/lib/pq"
)

// InsertDeadLetters inserts 4,000 facet groups of a tenant with three dead letters each, their runs, cases,
// annotations and receipts, and the rows of the search index. The messages of each group differ. The table
// recourse.made has the ids of those that were inserted last.
func InsertDeadLetters(t testing.TB, db *sql.DB, tenant string) {
	t.Helper()
	for _, query := range []string{
		`DROP TABLE IF EXISTS recourse.made`,
		`CREATE TABLE recourse.made AS SELECT tenant, n, sha256((tenant || n / 3)::bytea) AS facets, gen_random_uuid() AS run, gen_random_uuid() AS case_id, timestamptz '2026-11-01' + n % 500 * interval '1 min' AS died
			FROM generate_series(0, 11999) n, (SELECT ` + pq.QuoteLiteral(tenant) + `::text AS tenant) of`,
		`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, payload, state, live, active, letter, attempt_count, last_transition, due_at, dead_at, error_text, remote)
			SELECT run, case_id, tenant, 'ojs', 'job_' || n, 'q', 'mail.send', '{}', '{}', 'dead_lettered', false, true, 'open', 1, gen_random_uuid(), died, died, 'account ' || n || ' closed', true FROM recourse.made`,
		`INSERT INTO recourse.cases (id, tenant, kind, subject, content, run_id, last_seq, last_link) SELECT case_id, tenant, 'plain', 'ojs:job_' || n, 'x', run, 2, sha256('x') FROM recourse.made`,
		`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
			SELECT case_id, seq, run, tenant, 'post_adjudication_retry', CASE seq WHEN 1 THEN 'submitted' ELSE 'replayed' END, 'test', died, '{}', sha256('x') FROM recourse.made, generate_series(1, 2) seq`,
		`INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) SELECT run, tenant, true, 'asked' FROM recourse.made`,
		`INSERT INTO recourse.facet_groups (digest, tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, whole, replayed_by, held, unresolved, eligible, review)
			SELECT facets, tenant, 'open', 'ojs', 'q', 'mail.send', '', '', '', '', 'EUR', 'x', 'account of ' || min(n), false, '', true, false, false, false FROM recourse.made GROUP BY facets, tenant ORDER BY min(n)`,
		`INSERT INTO recourse.letters (run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, attempts, replays, notification_number, error_text)
			SELECT m.run, m.tenant, s.id, 'txr_' || m.n, 'rcpt_' || m.n, 'esc', m.died, m.died, m.n % 100, 1, 0, 0, 'account ' || m.n || ' closed' FROM recourse.made m JOIN recourse.facet_groups s ON s.digest = m.facets`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatalf("%v: %s", err, query)
		}
	}
}
