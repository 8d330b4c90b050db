package journal

import (
	"context"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// TrailCursor is where the next page begins in a trail: by case, then sequence.
type TrailCursor = stored.TrailCursor

// Receipts reads the receipt trail.
type Receipts struct {
	*shared
	recentStmt *pg.Statement
}

// Trail reads receipts of a tenant, by case and sequence, strictly after a position. A zero
// case selects all of the tenant's cases.
func (r *Receipts) Trail(ctx context.Context, tenant string, caseID receipts.CaseID, after TrailCursor, limit int) ([]receipts.Receipt, error) {
	out, err := stored.Trail(ctx, r.readDB, tenant, caseID, after, limit)
	return out, pg.Wrap(err)
}

// OfCase reads the receipts of a tenant's case with one of some subtypes, in order.
func (r *Receipts) OfCase(ctx context.Context, tenant string, id receipts.CaseID, subtypes ...receipts.Subtype) ([]receipts.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	texts := make(pq.StringArray, len(subtypes))
	for i, s := range subtypes {
		texts[i] = string(s)
	}
	var rows []stored.ReceiptRow
	err := r.readDB.SelectContext(ctx, &rows, `SELECT `+receiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = ANY($3) ORDER BY seq`, tenant, id.String(), texts)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]receipts.Receipt, len(rows))
	for i := range rows {
		out[i] = rows[i].Receipt()
	}
	return out, nil
}

const breachReceiptsSQL = `SELECT ` + receiptColumns + ` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = 'conservation-breach' ORDER BY seq`

// Excess returns the amount by which payments of a case exceeded what was adjudicated.
func (r *Receipts) Excess(ctx context.Context, tenant string, caseID receipts.CaseID) (excess int64, err error) {
	var rows []stored.ReceiptRow
	if err := r.readDB.SelectContext(ctx, &rows, breachReceiptsSQL, tenant, caseID.String()); err != nil {
		return 0, pg.Wrap(err)
	}
	for i := range rows {
		receipt := rows[i].Receipt()
		p, err := receipt.Payload()
		if err != nil {
			return 0, err
		}
		excess += p.Excess
	}
	return excess, nil
}

const contradictionsSQL = `SELECT count(*) FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = 'contradicted'`

// Contradictions counts the answers and findings that contradict what is on record of a case's payments.
func (r *Receipts) Contradictions(ctx context.Context, tenant string, caseID receipts.CaseID) (n int, err error) {
	return n, pg.Wrap(r.readDB.QueryRowContext(ctx, contradictionsSQL, tenant, caseID.String()).Scan(&n))
}

const deliveryReceiptSQL = `SELECT EXISTS (SELECT FROM recourse.receipts
WHERE case_id = $1 AND run_id = $2 AND subtype = $3 AND body::json -> 'payload' ->> 'dispatch_reference' = $4)`

// HasDeliveryReceipt reports whether the run's case has a receipt of a subtype for a
// dispatch reference.
func (r *Receipts) HasDeliveryReceipt(ctx context.Context, run background.Run, subtype receipts.Subtype, dispatch string) (found bool, err error) {
	err = r.readDB.QueryRowContext(ctx, deliveryReceiptSQL, run.Case.String(), run.ID.String(), string(subtype), dispatch).Scan(&found)
	if err != nil {
		return false, pg.Wrap(err)
	}
	return found, nil
}

// NumberedReceipt is a receipt with its number in an order of events. From numbers the receipts of one
// tenant, and Deaths those of all tenants. Numbers begin at 1, and within a case they rise with the sequence.
// Those of all tenants have no gaps. Those of a tenant have gaps only where older versions gave no number of
// the tenant's own: such a receipt has the number that all tenants share.
type NumberedReceipt struct {
	Number int64
	receipts.Receipt
}

type numberedRow struct {
	Number int64 `db:"number"`
	stored.ReceiptRow
}

// From reads receipts of a tenant in their order, beginning with the first whose
// number is at least from.
func (r *Receipts) From(ctx context.Context, tenant string, from int64, limit int) ([]NumberedReceipt, error) {
	var rows []numberedRow
	if err := r.readDB.SelectContext(ctx, &rows, stored.EventPageSQL, tenant, from, limit); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]NumberedReceipt, len(rows))
	for i := range rows {
		out[i] = NumberedReceipt{rows[i].Number, rows[i].Receipt()}
	}
	return out, nil
}

// LastNumberOfTenant returns the greatest number of a tenant's receipts; 0 if none is numbered.
func (r *Receipts) LastNumberOfTenant(ctx context.Context, tenant string) (last int64, err error) {
	if err := r.readDB.GetContext(ctx, &last, `SELECT coalesce((SELECT coalesce(tenant_last, last) FROM recourse.event_log WHERE tenant = $1 ORDER BY coalesce(tenant_last, last) DESC LIMIT 1), 0)`, tenant); err != nil {
		return 0, pg.Wrap(err)
	}
	return last, nil
}

// Mark is a receipt in an order of events: its number, and its link, which no other receipt has. If the database loses
// the end of the order, another receipt gets the number.
type Mark struct {
	Number int64
	Link   [32]byte
}

// $1 tenant, empty: the order of all tenants · $2 numbers
func marksSQL(last string) string {
	return `SELECT n.number, r.link FROM unnest($2::bigint[]) AS n(number)
CROSS JOIN LATERAL (SELECT ` + last + ` AS last, l.case_ids, l.seqs FROM recourse.event_log l WHERE ($1 = '' OR l.tenant = $1) AND ` + last + ` >= n.number ORDER BY ` + last + ` LIMIT 1) l
CROSS JOIN LATERAL (SELECT case_id, seq, row_number() OVER (ORDER BY case_id, seq) AS place FROM unnest(l.case_ids, l.seqs) AS u(case_id, seq)) u
JOIN recourse.receipts r ON r.case_id = u.case_id AND r.seq = u.seq
WHERE u.place = n.number - l.last + cardinality(l.seqs) ORDER BY n.number`
}

// Marks reads the receipts that have some numbers now, in the order of a tenant, or of all tenants if it is empty.
func (r *Receipts) Marks(ctx context.Context, tenant string, numbers []int64) (out []Mark, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	last := "l.last"
	if tenant != "" {
		last = "coalesce(l.tenant_last, l.last)"
	}
	var rows []struct {
		Number int64  `db:"number"`
		Link   []byte `db:"link"`
	}
	if err := r.readDB.SelectContext(ctx, &rows, marksSQL(last), tenant, pq.Array(numbers)); err != nil {
		return nil, pg.Wrap(err)
	}
	for _, row := range rows {
		out = append(out, Mark{row.Number, [32]byte(row.Link)})
	}
	return out, nil
}

// DeathReceipt is the dead-lettered receipt of a run, with its number in the order of all tenants, and fields of
// the run and the case that the receipt does not have.
type DeathReceipt struct {
	NumberedReceipt
	Family   string
	RetryKey string
	Kind     Kind
	Subject  string
}

// LastNumber returns the number of the last receipt in the order of all tenants; 0 if there is
// none.
func (r *Receipts) LastNumber(ctx context.Context) (last int64, err error) {
	if err := r.readDB.QueryRowContext(ctx, `SELECT coalesce(max(last), 0) FROM recourse.event_log`).Scan(&last); err != nil {
		return 0, pg.Wrap(err)
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
// LastNumber or Deaths returned. It reads the receipts of at most logRows rows of the event log.
// next is the number to go on from; it equals after if there is nothing new.
func (r *Receipts) Deaths(ctx context.Context, after int64, logRows int) (found []DeathReceipt, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	if err := r.readDB.QueryRowContext(ctx, deathsUntilSQL, after, logRows).Scan(&next); err != nil {
		return nil, after, pg.Wrap(err)
	}
	if next == after {
		return nil, after, nil
	}
	var rows []deathRow
	if err := r.readDB.SelectContext(ctx, &rows, deathsSQL, after, next); err != nil {
		return nil, after, pg.Wrap(err)
	}
	found = make([]DeathReceipt, len(rows))
	for i, row := range rows {
		found[i] = DeathReceipt{NumberedReceipt: NumberedReceipt{row.Number, row.Receipt()}, Family: row.Family, RetryKey: row.RetryKey, Kind: Kind(row.Kind), Subject: row.Subject}
	}
	return found, next, nil
}

// $1 tenant · $2 cases · $3 the number before their first newest receipt · $4 bytes of bodies, after which no
// case begins
const recentReceiptsSQL = `SELECT ` + receiptColumns + `, place FROM (
SELECT t.*, c.place, sum(octet_length(t.body)) OVER (ORDER BY c.place) - sum(octet_length(t.body)) OVER (PARTITION BY c.place) AS bytes_before
FROM unnest($2::uuid[],$3::bigint[]) WITH ORDINALITY AS c(id,after,place) CROSS JOIN LATERAL (
  SELECT ` + receiptColumns + ` FROM recourse.receipts WHERE tenant = $1 AND case_id = c.id AND seq = 1 AND c.after > 0
  UNION ALL SELECT ` + receiptColumns + ` FROM recourse.receipts WHERE tenant = $1 AND case_id = c.id AND seq > c.after) t) q
WHERE bytes_before < $4 ORDER BY place, seq`

// Recent reads the first receipt of cases and their newest ones, at most newest of each, in sequence. It
// reads the first of the cases, at least one, and none after maxBytes of bodies. The cases are as they were read.
func (r *Receipts) Recent(ctx context.Context, tenant string, cases []Case, newest, maxBytes int64) ([][]receipts.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(2, len(cases))
	for i := range cases {
		c.ID(cases[i].ID)
		c.Int(max(0, cases[i].Head.Seq-newest))
	}
	type placed struct {
		stored.ReceiptRow
		Place int `db:"place"`
	}
	rows, err := pg.QueryAll[placed](ctx, r.recentStmt, "", append(append([]any{tenant}, c.Args()...), maxBytes)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	out, read := make([][]receipts.Receipt, len(cases)), len(cases)
	for i := range rows {
		read = rows[i].Place
		out[read-1] = append(out[read-1], rows[i].Receipt())
	}
	return out[:read], nil
}
