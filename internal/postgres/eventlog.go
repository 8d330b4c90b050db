package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

// NumberedReceipt is a receipt with its number in the order of its tenant's receipts.
// Numbers begin at 1, and within a case they rise with the sequence. They have no gaps,
// except before and between those of rows without a number of the tenant's own: these have
// the number that all tenants share.
type NumberedReceipt struct {
	Position int64
	receipts.Receipt
}

type numberedRow struct {
	Position int64 `db:"number"`
	receiptRow
}

// The query reads only the rows of the log whose numbers fit into the limit, and only their
// receipts: OFFSET 0 keeps the server from reading all receipts of the tenant to join them.
const eventPageSQL = `
WITH near AS (
  SELECT last, case_ids, seqs, sum(least(cardinality(seqs), last - $2 + 1)) OVER (ORDER BY last ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead
  FROM (SELECT coalesce(tenant_last, last) AS last, case_ids, seqs FROM recourse.event_log
    WHERE tenant = $1 AND coalesce(tenant_last, last) >= $2 ORDER BY coalesce(tenant_last, last) LIMIT $3) l
), n AS MATERIALIZED (
  SELECT near.last - cardinality(near.seqs) + u.place AS number, u.case_id, u.seq
  FROM near, LATERAL (
    SELECT case_id, seq, row_number() OVER (ORDER BY case_id, seq) AS place FROM unnest(near.case_ids, near.seqs) AS u(case_id, seq)) u
  WHERE coalesce(near.ahead, 0) < $3 AND near.last - cardinality(near.seqs) + u.place >= $2
  ORDER BY number LIMIT $3
)
SELECT n.number, r.case_id, r.seq, r.run_id, r.tenant, r.source, r.subtype, r.actor, r.at, r.body, r.link
FROM n CROSS JOIN LATERAL (
  SELECT r.* FROM recourse.receipts r WHERE r.case_id = n.case_id AND r.seq = n.seq AND r.tenant = $1 OFFSET 0) r
ORDER BY n.number`

// From reads receipts of a tenant in their order, beginning with the first whose
// number is at least from.
func (r *Receipts) From(ctx context.Context, tenant string, from int64, limit int) ([]NumberedReceipt, error) {
	var rows []numberedRow
	if err := r.readDB.SelectContext(ctx, &rows, eventPageSQL, tenant, from, limit); err != nil {
		return nil, unavailable(err)
	}
	out := make([]NumberedReceipt, len(rows))
	for i := range rows {
		out[i] = NumberedReceipt{rows[i].Position, rows[i].receipt()}
	}
	return out, nil
}

// LastNumberOf returns the greatest number of a tenant's receipts; 0 if none is numbered.
func (r *Receipts) LastNumberOf(ctx context.Context, tenant string) (last int64, err error) {
	if err := r.readDB.GetContext(ctx, &last, `SELECT coalesce((SELECT coalesce(tenant_last, last) FROM recourse.event_log WHERE tenant = $1 ORDER BY coalesce(tenant_last, last) DESC LIMIT 1), 0)`, tenant); err != nil {
		return 0, unavailable(err)
	}
	return last, nil
}

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

// EachEventOrderError visits, deaths first:
//   - the receipts of a tenant that do not have exactly one place in the order of events;
//   - those that come before an earlier receipt of their case;
//   - places without a receipt.
func (a *Audit) EachEventOrderError(ctx context.Context, tenant string, visit func(at TrailPosition, what string)) error {
	return a.eachRow(ctx, func(rows *sql.Rows) error {
		var caseID uuid.UUID
		var seq, times int64
		var subtype string
		var early bool
		if err := rows.Scan(&caseID, &seq, &subtype, &times, &early); err != nil {
			return err
		}
		at := TrailPosition{receipts.CaseID(caseID), seq}
		switch {
		case subtype == "":
			visit(at, fmt.Sprintf("the order of events tells of receipt %d, and there is none", seq))
		case early:
			visit(at, fmt.Sprintf("receipt %d (%s) comes before an earlier one of its case in the order of events", seq, subtype))
		case times == 0:
			visit(at, fmt.Sprintf("receipt %d (%s) has no place in the order of events", seq, subtype))
		default:
			visit(at, fmt.Sprintf("receipt %d (%s) has %d places in the order of events", seq, subtype, times))
		}
		return nil
	}, eventOrderErrorsSQL, tenant)
}

const eventGapSQL = `SELECT before + 1, first - 1 FROM (SELECT last, last - cardinality(seqs) + 1 AS first, lag(last, 1, 0::bigint) OVER (ORDER BY last) AS before FROM recourse.event_log) g
WHERE first <> before + 1 ORDER BY last`

// projectionAheadSQL finds a projection that claims a position after the end of the event
// log: it would skip the next receipts.
const projectionAheadSQL = `SELECT NULL::uuid, NULL::uuid, 'the order of events ends at ' || e.last || ', and the list of ' || p.name || ' follows it up to ' || p.last
FROM recourse.projected p, (SELECT coalesce(max(last), 0) AS last FROM recourse.event_log) e WHERE p.last > e.last`

// EachProjectionAhead visits the projections beyond the end of the order of events.
func (a *Audit) EachProjectionAhead(ctx context.Context, visit func(Discrepancy)) error {
	return a.eachDiscrepancy(ctx, visit, projectionAheadSQL)
}

// tenantEventGapSQL finds gaps between a tenant's own numbers. Numbers
// that all tenants share only have to rise.
const tenantEventGapSQL = `SELECT before + 1, first - 1 FROM (
  SELECT last, tenant_last, coalesce(tenant_last, last) - cardinality(seqs) + 1 AS first, lag(coalesce(tenant_last, last), 1, 0::bigint) OVER (ORDER BY last) AS before
  FROM recourse.event_log WHERE tenant = $1) g
WHERE CASE WHEN tenant_last IS NULL THEN first <= before ELSE first <> before + 1 END ORDER BY last`

// EachTenantEventGap is EachEventGap for the numbers of one tenant.
func (a *Audit) EachTenantEventGap(ctx context.Context, tenant string, visit func(from, to int64)) error {
	return a.eachGapRow(ctx, visit, tenantEventGapSQL, tenant)
}

// EachEventGap visits the ranges of numbers that are missing in the order of events; where
// the order is wrong, the range that is given twice.
func (a *Audit) EachEventGap(ctx context.Context, visit func(from, to int64)) error {
	return a.eachGapRow(ctx, visit, eventGapSQL)
}

func (a *Audit) eachGapRow(ctx context.Context, visit func(from, to int64), query string, args ...any) error {
	return a.eachRow(ctx, func(rows *sql.Rows) error {
		var from, to int64
		if err := rows.Scan(&from, &to); err != nil {
			return err
		}
		visit(from, to)
		return nil
	}, query, args...)
}

// DeathEvent is the dead-lettered receipt of a run, with fields of the run and the case
// that the receipt does not have.
type DeathEvent struct {
	NumberedReceipt
	Family   string
	RetryKey string
	Kind     Kind
	Subject  string
}

// LastPosition returns the number of the last receipt in the order of events; 0 if there is
// none.
func (r *Receipts) LastPosition(ctx context.Context) (last int64, err error) {
	if err := r.readDB.QueryRowContext(ctx, `SELECT coalesce(max(last), 0) FROM recourse.event_log`).Scan(&last); err != nil {
		return 0, unavailable(err)
	}
	return last, nil
}

const deathsUntilSQL = `SELECT coalesce(max(last), $1) FROM (SELECT last FROM recourse.event_log WHERE last > $1 ORDER BY last LIMIT $2) l`

const deathsSQL = `
WITH n AS MATERIALIZED (
  SELECT l.last - cardinality(l.seqs) + u.place AS number, u.case_id, u.seq FROM recourse.event_log l, LATERAL (
    SELECT case_id, seq, row_number() OVER (ORDER BY case_id, seq) AS place FROM unnest(l.case_ids, l.seqs) AS u(case_id, seq)) u
  WHERE l.last > $1 AND l.last <= $2
)
SELECT n.number, r.case_id, r.seq, r.run_id, r.tenant, r.source, r.subtype, r.actor, r.at, r.body, r.link, d.family, d.retry_key, c.kind, c.subject
FROM n JOIN recourse.receipts r ON r.case_id = n.case_id AND r.seq = n.seq AND r.subtype = 'dead-lettered'
  JOIN recourse.runs d ON d.id = r.run_id JOIN recourse.cases c ON c.id = r.case_id
ORDER BY n.number`

type deathRow struct {
	numberedRow
	Family   string `db:"family"`
	RetryKey string `db:"retry_key"`
	Kind     string `db:"kind"`
	Subject  string `db:"subject"`
}

// Deaths reads the deaths of all tenants in the order of events, after a number that
// LastPosition or Deaths returned. It reads the receipts of at most so many statements.
// next is the number to go on from; it equals after if there is nothing new.
func (j *Receipts) Deaths(ctx context.Context, after int64, statements int) (found []DeathEvent, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := j.readDB.QueryRowContext(ctx, deathsUntilSQL, after, statements).Scan(&next); err != nil {
		return nil, after, unavailable(err)
	}
	if next == after {
		return nil, after, nil
	}
	var rows []deathRow
	if err := j.readDB.SelectContext(ctx, &rows, deathsSQL, after, next); err != nil {
		return nil, after, unavailable(err)
	}
	found = make([]DeathEvent, len(rows))
	for i, r := range rows {
		found[i] = DeathEvent{NumberedReceipt: NumberedReceipt{r.Position, r.receipt()}, Family: r.Family, RetryKey: r.RetryKey, Kind: Kind(r.Kind), Subject: r.Subject}
	}
	return found, next, nil
}
