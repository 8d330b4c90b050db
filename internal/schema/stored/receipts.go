package stored

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ReceiptColumns are the columns of recourse.receipts, in the order of a ReceiptRow.
const ReceiptColumns = `case_id,seq,run_id,tenant,source,subtype,actor,at,body,link`

// ReceiptRow is a row of recourse.receipts.
type ReceiptRow struct {
	CaseID  uuid.UUID     `db:"case_id"`
	Seq     int64         `db:"seq"`
	RunID   uuid.NullUUID `db:"run_id"`
	Tenant  string        `db:"tenant"`
	Source  string        `db:"source"`
	Subtype string        `db:"subtype"`
	Actor   string        `db:"actor"`
	At      time.Time     `db:"at"`
	Body    string        `db:"body"`
	Link    []byte        `db:"link"`
}

// Receipt returns the row as a receipt.
func (r *ReceiptRow) Receipt() receipts.Receipt {
	out := receipts.Receipt{
		Case: receipts.CaseID(r.CaseID), Seq: r.Seq, Run: receipts.RunID(r.RunID.UUID), Tenant: r.Tenant,
		Source: receipts.Source(r.Source), Subtype: receipts.Subtype(r.Subtype), Actor: r.Actor, At: r.At.UTC(), Body: []byte(r.Body),
	}
	copy(out.Link[:], r.Link)
	return out
}

// TrailCursor is where the next page begins in a trail: by case, then sequence.
type TrailCursor struct {
	Case receipts.CaseID
	Seq  int64
}

const trailSQL = `SELECT ` + ReceiptColumns + ` FROM recourse.receipts
WHERE tenant = $1 AND (case_id, seq) > ($2, $3) AND ($4::uuid IS NULL OR case_id = $4) ORDER BY case_id, seq LIMIT $5`

// Trail reads receipts of a tenant, by case and sequence, strictly after a position. A zero
// case selects all of the tenant's cases.
func Trail(ctx context.Context, q Querier, tenant string, caseID receipts.CaseID, after TrailCursor, limit int) ([]receipts.Receipt, error) {
	return selectReceipts(ctx, q, trailSQL, tenant, after.Case.String(), after.Seq, OptionalCase(caseID), limit)
}

// CaseTrail reads all receipts of a tenant's case, in order.
func CaseTrail(ctx context.Context, q Querier, tenant string, caseID receipts.CaseID) ([]receipts.Receipt, error) {
	return selectReceipts(ctx, q, `SELECT `+ReceiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 ORDER BY seq`, tenant, caseID.String())
}

// OptionalCase returns a parameter that selects one case; nil, which selects all cases, for the zero id.
func OptionalCase(id receipts.CaseID) *string {
	if id.IsZero() {
		return nil
	}
	s := id.String()
	return &s
}

func selectReceipts(ctx context.Context, q Querier, query string, args ...any) ([]receipts.Receipt, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []receipts.Receipt{}
	for rows.Next() {
		var r ReceiptRow
		if err := rows.Scan(&r.CaseID, &r.Seq, &r.RunID, &r.Tenant, &r.Source, &r.Subtype, &r.Actor, &r.At, &r.Body, &r.Link); err != nil {
			return nil, err
		}
		out = append(out, r.Receipt())
	}
	return out, rows.Err()
}

// EventPageSQL reads at most $3 receipts of tenant $1 in their order, each after its number, from
// number $2 on. It reads only the rows of the log whose numbers fit into the limit, and only their
// receipts: OFFSET 0 keeps the server from reading all receipts of the tenant to join them.
const EventPageSQL = `
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

// NumberedReceipt is a receipt with its number in the order of its tenant's receipts.
type NumberedReceipt struct {
	Number int64
	receipts.Receipt
}

// EventPage reads at most limit receipts of a tenant in their order, beginning with the first whose
// number is at least from.
func EventPage(ctx context.Context, q Querier, tenant string, from int64, limit int) (out []NumberedReceipt, err error) {
	rows, err := q.QueryContext(ctx, EventPageSQL, tenant, from, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var number int64
		var r ReceiptRow
		if err := rows.Scan(&number, &r.CaseID, &r.Seq, &r.RunID, &r.Tenant, &r.Source, &r.Subtype, &r.Actor, &r.At, &r.Body, &r.Link); err != nil {
			return nil, err
		}
		out = append(out, NumberedReceipt{number, r.Receipt()})
	}
	return out, rows.Err()
}
