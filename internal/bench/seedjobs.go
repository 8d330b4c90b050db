package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Many jobs are made by SQL as copies of jobs that went through the door. A copy has its own ids and
// times, in its rows and in the bodies of its receipts, and its own chain: it is audited as any other.
// Only what its envelope says of a time stays as it was.

// jobCopies says how often a job is copied, and how the copies are spread over time: the first is older
// than the job by a step, each other by a step than the one before it.
type jobCopies struct {
	of    string // the id of the job
	count int
	step  time.Duration
}

// copiesSQL names the copies, and gives them ids that depend on the job and their number only.
var copiesSQL = []string{
	`CREATE TEMP TABLE copies AS
SELECT row_number() OVER (ORDER BY x.age DESC, x.job) AS n, x.template, x.age, (x.time7 || '7' || substr(md5('run' || x.seed), 1, 3) || 'a' || substr(md5('run' || x.seed), 4, 15))::uuid AS run,
  (x.time7 || '7' || substr(md5('case' || x.seed), 1, 3) || 'a' || substr(md5('case' || x.seed), 4, 15))::uuid AS case_id, (x.time7 || '7' || substr(md5('job' || x.seed), 1, 3) || 'a' || substr(md5('job' || x.seed), 4, 15))::uuid AS job
FROM (
  SELECT t.job, r.case_id AS template, t.step * g AS age, t.job || ':' || g AS seed, lpad(to_hex((extract(epoch FROM s.at - t.step * g) * 1000)::bigint), 12, '0') AS time7
  FROM unnest($1::text[], $2::int[], $3::interval[]) AS t(job, copies, step) JOIN recourse.runs r ON r.retry_key = t.job AND r.remote JOIN recourse.receipts s ON s.case_id = r.case_id AND s.seq = 1, generate_series(1, t.copies) g
) x`,
	`CREATE INDEX ON copies (template)`,
	`ANALYZE copies`,
	// The texts in the bodies of a template that are another one's in a copy: its ids and its times.
	`CREATE TEMP TABLE templates AS
SELECT r.case_id AS template, r.id AS run, r.retry_key AS job, (SELECT array_agg(DISTINCT at) FROM (SELECT at FROM recourse.receipts s WHERE s.case_id = r.case_id UNION SELECT r.due_at) x WHERE isfinite(at) AND at < '9999-01-01') AS times
FROM recourse.runs r WHERE r.case_id IN (SELECT DISTINCT template FROM copies)`,
	`CREATE FUNCTION pg_temp.older(body text, times timestamptz[], age interval) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE at timestamptz; form CONSTANT text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
BEGIN
  FOREACH at IN ARRAY times LOOP
    body := replace(body, to_char(at AT TIME ZONE 'UTC', form), to_char((at - age) AT TIME ZONE 'UTC', form));
  END LOOP;
  RETURN body;
END $$`,
}

// copiedReceiptSQL makes receipt $1 of every copy, chained to the one before.
const copiedReceiptSQL = `
INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
SELECT c.case_id, r.seq, c.run, r.tenant, r.source, r.subtype, r.actor, r.at - c.age, b.body, sha256(coalesce(p.link, sha256('recourse/1' || uuid_send(c.case_id))) || int8send(r.seq) || sha256(convert_to(b.body, 'UTF8')))
FROM copies c JOIN templates t USING (template) JOIN recourse.receipts r ON r.case_id = c.template AND r.seq = $1 LEFT JOIN recourse.receipts p ON p.case_id = c.case_id AND p.seq = r.seq - 1,
  LATERAL (SELECT pg_temp.older(replace(replace(replace(r.body, t.template::text, c.case_id::text), t.run::text, c.run::text), t.job, c.job::text), t.times, c.age) AS body) b
ORDER BY c.n`

// copiedRowsSQL makes the other rows of the copies. %s stands for the columns that are copied as they are.
var copiedRowsSQL = []struct {
	table string
	own   string // columns that are not
	text  string
}{
	{"runs", "id,case_id,retry_key,due_at,dead_at", `INSERT INTO recourse.runs (id, case_id, retry_key, due_at, dead_at, %[1]s)
SELECT c.run, c.case_id, c.job, x.due_at - c.age, x.dead_at - c.age, x.%[2]s FROM copies c JOIN recourse.runs x ON x.case_id = c.template ORDER BY c.n`},
	{"cases", "id,subject,run_id,first_sent_at,last_link", `INSERT INTO recourse.cases (id, subject, run_id, first_sent_at, last_link, %[1]s)
SELECT c.case_id, x.kind_subject || c.job, c.run, x.first_sent_at - c.age, l.link, x.%[2]s
FROM copies c JOIN (SELECT *, split_part(subject, ':', 1) || ':' AS kind_subject FROM recourse.cases) x ON x.id = c.template JOIN recourse.receipts l ON l.case_id = c.case_id AND l.seq = x.last_seq ORDER BY c.n`},
}

// copiedOutboxSQL hands the receipts of the copies to the server that numbers them, as commits of many
// jobs do.
const copiedOutboxSQL = `
INSERT INTO recourse.outbox (tenant, case_ids, seqs)
SELECT tenant, array_agg(case_id ORDER BY case_id, seq), array_agg(seq ORDER BY case_id, seq)
FROM (SELECT c.n / 200 AS part, r.tenant, r.case_id, r.seq FROM copies c JOIN recourse.receipts r ON r.case_id = c.case_id) x GROUP BY part, tenant ORDER BY part`

// copyJobs copies jobs, as the owner of the schema, and waits until a running server has numbered the
// receipts.
func copyJobs(ctx context.Context, ownerURL string, all ...jobCopies) (err error) {
	db, err := sql.Open("postgres", ownerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var ids, counts, steps []string
	for _, c := range all {
		ids, counts, steps = append(ids, c.of), append(counts, fmt.Sprint(c.count)), append(steps, fmt.Sprintf(`"%d microseconds"`, c.step.Microseconds()))
	}
	array := func(s []string) string { return "{" + strings.Join(s, ",") + "}" }
	for i, q := range append([]string{`SET work_mem = '256MB'`, `SET synchronous_commit = off`}, copiesSQL...) {
		var args []any
		if i == 2 {
			args = []any{array(ids), array(counts), array(steps)}
		}
		if _, err := conn.ExecContext(ctx, q, args...); err != nil {
			return fmt.Errorf("naming copies, step %d: %w", i, err)
		}
	}
	if err := writeCopies(ctx, conn); err != nil {
		return err
	}
	if err := execute(ctx, ownerURL, `VACUUM ANALYZE`); err != nil { // which the server would do in time
		return err
	}
	return untilNone(ctx, db, `SELECT EXISTS (SELECT FROM recourse.outbox)`)
}

func writeCopies(ctx context.Context, conn *sql.Conn) error {
	var last int
	if err := conn.QueryRowContext(ctx, `SELECT coalesce(max(last_seq), 0) FROM recourse.cases WHERE id IN (SELECT template FROM templates)`).Scan(&last); err != nil {
		return err
	}
	for seq := 1; seq <= last; seq++ {
		if _, err := conn.ExecContext(ctx, copiedReceiptSQL, seq); err != nil {
			return fmt.Errorf("copying receipts: %w", err)
		}
	}
	for _, rows := range copiedRowsSQL {
		columns, err := columnsBut(ctx, conn, rows.table, rows.own)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, fmt.Sprintf(rows.text, strings.Join(columns, ", "), strings.Join(columns, ", x."))); err != nil {
			return fmt.Errorf("copying %s: %w", rows.table, err)
		}
	}
	_, err := conn.ExecContext(ctx, copiedOutboxSQL)
	return err
}

// columnsBut returns the columns of a table that can be written, without some.
func columnsBut(ctx context.Context, conn *sql.Conn, table, without string) (columns []string, err error) {
	rows, err := conn.QueryContext(ctx, `SELECT column_name FROM information_schema.columns WHERE table_schema = 'recourse' AND table_name = $1 AND is_generated = 'NEVER'
		AND column_name <> ALL (string_to_array($2, ',')) ORDER BY ordinal_position`, table, without)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		columns = append(columns, name)
	}
	return columns, rows.Err()
}

// untilNone waits until a query returns false.
func untilNone(ctx context.Context, db *sql.DB, query string) error {
	for some := true; some; {
		if err := db.QueryRowContext(ctx, query).Scan(&some); err != nil {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
