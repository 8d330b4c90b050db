package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/retrypolicy"
)

// The letters are made by SQL, like the deaths of half a year: 20 causes of very different
// frequency, two families, three currencies, most letters open. Only their last receipt is
// made, so their chains do not verify.

// lettersTenant has the letters; one in fifty more belongs to another tenant.
const lettersTenant = "bench"

// causesSQL makes the causes of death, each with its range of thousandths: reason code, class,
// error type, and the message, in which % stands for the part that differs.
const causesSQL = `
CREATE TEMP TABLE causes AS SELECT * FROM (VALUES
  (  0, 180, 'retry_exhausted',    'not_executed', 'http.unavailable',  '503 Service Unavailable'),
  (180, 330, 'final',              'not_executed', 'http.refused',      'account % is closed'),
  (330, 450, 'retry_exhausted',    'not_executed', 'http.rate_limited', 'too many requests, try again'),
  (450, 550, 'outcome_unknown',    'unknown',      'http.no_answer',    'no answer from 10.0.0.%:8443 after 10s'),
  (550, 640, 'final',              'not_executed', 'http.refused',      'insufficient funds on account %'),
  (640, 710, 'retry_exhausted',    'not_executed', 'net.refused',       'dial tcp 10.0.0.%:8443: connection refused'),
  (710, 770, 'final',              'not_executed', 'http.refused',      'beneficiary "Jane %" is not known'),
  (770, 820, 'outcome_unknown',    'unknown',      'http.reset',        'connection reset by peer'),
  (820, 860, 'retry_exhausted',    'not_executed', 'http.in_flight',    'operation % is in flight'),
  (860, 895, 'non_retryable_type', 'not_executed', 'config.missing',    'no route for currency'),
  (895, 925, 'final',              'not_executed', 'http.refused',      'escrow esc_% is frozen by court order'),
  (925, 950, 'poison_pill',        'unknown',      'worker.lost',       'the worker was lost 5 times'),
  (950, 965, 'retry_exhausted',    'not_executed', 'tls.handshake',     'remote error: tls: bad certificate'),
  (965, 977, 'final',              'not_executed', 'http.refused',      'limit of % exceeded'),
  (977, 986, 'outcome_unknown',    'unknown',      'http.unreadable',   'unexpected end of JSON input'),
  (986, 992, 'final',              'not_executed', 'http.gone',         'transaction txr_% has expired'),
  (992, 996, 'retry_exhausted',    'not_executed', 'dns.failure',       'lookup bank.example: no such host'),
  (996, 998, 'final',              'not_executed', 'http.refused',      'sanctions screening hit on party %'),
  (998, 999, 'outcome_unknown',    'unknown',      'panic',             'runtime error: index out of range [%]'),
  (999, 1000, 'final',             'not_executed', 'http.teapot',       'short and stout')
) AS c(low, high, reason, class, type, message)`

// drawLettersSQL draws $1 letters. A letter depends on its number only.
const drawLettersSQL = `
CREATE TEMP TABLE drawn AS
SELECT n, (time7 || '7' || substr(md5('run' || n), 1, 19))::uuid AS run, (time7 || '7' || substr(md5('case' || n), 1, 19))::uuid AS kase, CASE WHEN n % 51 = 50 THEN 'other' ELSE '` + lettersTenant + `' END AS tenant,
  CASE WHEN n % 10 = 9 THEN 'mailer' ELSE 'settlement' END AS family, h3 % 4 AS shard,
  CASE WHEN h2 % 10 < 3 THEN 'refund' ELSE 'release' END AS outcome,
  CASE WHEN h2 % 100 < 60 THEN 'EUR' WHEN h2 % 100 < 90 THEN 'USD' ELSE 'JPY' END AS currency,
  CASE WHEN h2 % 100 < 90 THEN 100 + h1 % 500000 ELSE 10000 + h1 % 50000000 END AS amount,
  CASE WHEN h3 % 100 < 85 THEN 'open' WHEN h3 % 100 < 95 THEN 'forked' WHEN h3 % 100 < 98 THEN 'reconciled' ELSE 'superseded' END AS letter,
  dead_at,
  c.reason, c.class, c.type, replace(c.message, '%', (1000 + h1 % 900000)::text) AS message,
  CASE c.reason WHEN 'retry_exhausted' THEN CASE WHEN h3 % 1000 = 7 THEN 12 ELSE 3 END WHEN 'outcome_unknown' THEN 1 + h1 % 3 WHEN 'poison_pill' THEN 6 ELSE 1 END AS attempts
FROM (SELECT n, dead_at, lpad(to_hex((extract(epoch FROM dead_at) * 1000)::bigint), 12, '0') AS time7, abs(hashint8(n)::bigint) AS h1, abs(hashint8(n + 1000000007)::bigint) AS h2, abs(hashint8(n + 2000000011)::bigint) AS h3 
  FROM generate_series(1, $1::bigint) n, LATERAL (SELECT '2026-05-20T00:00:00Z'::timestamptz + n * (interval '180 days' / $1::float8) AS dead_at) d) g
JOIN causes c ON h1 % 1000 >= c.low AND h1 % 1000 < c.high`

// The rows of deaths, from the drawn letters. $1 is a policy.
var letterRowsSQL = []string{
	`INSERT INTO recourse.escrows (tenant, reference, currency, held, committed)
SELECT tenant, 'esc_' || n, currency, amount, amount FROM drawn WHERE family = 'settlement'`,
	`INSERT INTO recourse.cases (id, tenant, kind, subject, escrow_id, submission, content, progression, reason_code, lifecycle, adjudication, generation, asked, reserved, run_id, unknown_open, last_seq, last_link)
SELECT d.kase, d.tenant, CASE d.family WHEN 'settlement' THEN 'settlement' ELSE 'plain' END, CASE d.family WHEN 'settlement' THEN 'txr_' || d.n ELSE 'mailer:job_' || d.n END, e.id,
  CASE d.family WHEN 'settlement' THEN 'sub_' || d.n ELSE '' END, '\x00', CASE d.family WHEN 'settlement' THEN 'dispute-ready' ELSE '' END, CASE d.family WHEN 'settlement' THEN 'escalate' ELSE '' END,
  CASE d.family WHEN 'settlement' THEN 're-escalated' ELSE '' END, CASE d.family WHEN 'settlement' THEN d.outcome ELSE '' END, 1,
  CASE d.family WHEN 'settlement' THEN d.amount ELSE 0 END, CASE d.family WHEN 'settlement' THEN d.amount ELSE 0 END, d.run, CASE d.class WHEN 'unknown' THEN 1 ELSE 0 END, 7, decode(repeat('00', 32), 'hex')
FROM drawn d LEFT JOIN recourse.escrows e ON e.tenant = d.tenant AND e.reference = 'esc_' || d.n AND d.family = 'settlement'`,
	`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, state, live, letter, active, attempt_count, budget_spent, class, last_transition, due_at, dead_at, reason, error_type, error_text)
SELECT d.run, d.kase, d.tenant, d.family, CASE d.family WHEN 'settlement' THEN 'txr_' || d.n || ':' || d.outcome ELSE 'job_' || d.n END, d.family || ':' || d.shard, 'escrow', $1, 'dead_lettered', false,
  d.letter, d.letter = 'open', d.attempts, d.attempts, d.class, d.run, d.dead_at, d.dead_at, d.reason, d.type, d.message FROM drawn d`,
	`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
SELECT kase, 7, run, tenant, 'post_adjudication_retry', CASE letter WHEN 'forked' THEN 'manual-retry-requested' ELSE 'dead-lettered' END,
  CASE letter WHEN 'forked' THEN 'user:' || (ARRAY['ada', 'bob', 'cem', 'dee'])[1 + n % 4] ELSE 'worker' END,
  dead_at + CASE letter WHEN 'open' THEN interval '0' ELSE (n % 5000) * interval '1 minute' END, '{}', decode(repeat('00', 32), 'hex') FROM drawn`,
	`INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason, reprocess_eligible, mark_reason)
SELECT run, tenant, n % 100 = 3, CASE WHEN n % 100 = 3 THEN 'a court asks' ELSE '' END, CASE WHEN n % 300 = 3 THEN true END, CASE WHEN n % 300 = 3 THEN 'mended' ELSE '' END
FROM drawn WHERE letter = 'open' AND n % 100 = 3`,
	`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs)
SELECT (SELECT coalesce(max(last), 0) FROM recourse.event_log) + sum(count(*)) OVER (ORDER BY n / 500, tenant), tenant, array_agg(kase), array_agg(7::bigint) FROM drawn GROUP BY n / 500, tenant ORDER BY 1`,
}

// makeLetters makes a number of letters.
func makeLetters(ctx context.Context, databaseURL string, n int) (err error) {
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, q := range []string{`SET work_mem = '256MB'`, `SET synchronous_commit = off`, causesSQL} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return fillLetters(ctx, conn, n)
}

func fillLetters(ctx context.Context, conn *sql.Conn, n int) error {
	policy := retrypolicy.Policy{}.Normalize().Encode()
	if _, err := conn.ExecContext(ctx, drawLettersSQL, n); err != nil {
		return fmt.Errorf("drawing letters: %w", err)
	}
	for i, q := range letterRowsSQL {
		var args []any
		if i == 2 {
			args = append(args, policy)
		}
		if _, err := conn.ExecContext(ctx, q, args...); err != nil {
			return fmt.Errorf("making letters, step %d: %w", i, err)
		}
	}
	return nil
}

// verifyLetters counts the rows of the list of letters.
func verifyLetters(ctx context.Context, db *sql.DB) error {
	var dead, listed, grouped int
	err := db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM recourse.runs WHERE state = 'dead_lettered' AND letter <> 'purged'),
		(SELECT count(*) FROM recourse.letters), (SELECT coalesce(sum(letters), 0) FROM recourse.facet_groups)`).Scan(&dead, &listed, &grouped)
	return errors.Join(err, equal("listed letters", listed, dead), equal("letters by facet group", grouped, dead))
}
