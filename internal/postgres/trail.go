package postgres

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

type receiptRow struct {
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

func (r *receiptRow) receipt() receipts.Receipt {
	out := receipts.Receipt{
		Case: receipts.CaseID(r.CaseID), Seq: r.Seq, Run: receipts.RunID(r.RunID.UUID), Tenant: r.Tenant,
		Source: receipts.Source(r.Source), Subtype: receipts.Subtype(r.Subtype), Actor: r.Actor, At: r.At.UTC(), Body: []byte(r.Body),
	}
	copy(out.Link[:], r.Link)
	return out
}

// TrailPosition is a position in a trail: by case, then sequence.
type TrailPosition struct {
	Case receipts.CaseID
	Seq  int64
}

const trailSQL = `SELECT ` + receiptColumns + ` FROM recourse.receipts
WHERE tenant = $1 AND (case_id, seq) > ($2, $3) AND ($4::uuid IS NULL OR case_id = $4) ORDER BY case_id, seq LIMIT $5`

// Receipts reads the receipt trail.
type Receipts struct {
	*shared
}

// Trail reads receipts of a tenant, by case and sequence, strictly after a position. A zero
// case selects all of the tenant's cases.
func (r *Receipts) Trail(ctx context.Context, tenant string, caseID receipts.CaseID, after TrailPosition, limit int) ([]receipts.Receipt, error) {
	var oneCase *string
	if !caseID.IsZero() {
		s := caseID.String()
		oneCase = &s
	}
	var rows []receiptRow
	if err := r.readDB.SelectContext(ctx, &rows, trailSQL, tenant, after.Case.String(), after.Seq, oneCase, limit); err != nil {
		return nil, unavailable(err)
	}
	out := make([]receipts.Receipt, len(rows))
	for i := range rows {
		out[i] = rows[i].receipt()
	}
	return out, nil
}

// OfCase reads the receipts of a tenant's case with one of some subtypes, in order.
func (r *Receipts) OfCase(ctx context.Context, tenant string, id receipts.CaseID, subtypes ...receipts.Subtype) ([]receipts.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	texts := make(pq.StringArray, len(subtypes))
	for i, s := range subtypes {
		texts[i] = string(s)
	}
	var rows []receiptRow
	err := r.readDB.SelectContext(ctx, &rows, `SELECT `+receiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = ANY($3) ORDER BY seq`, tenant, id.String(), texts)
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]receipts.Receipt, len(rows))
	for i := range rows {
		out[i] = rows[i].receipt()
	}
	return out, nil
}

const trailPage = 2000

// All streams a tenant's receipts by case and sequence. It reads pages, so that
// memory does not grow with the trail.
func (j *Receipts) All(ctx context.Context, tenant string) iter.Seq2[receipts.Receipt, error] {
	return func(yield func(receipts.Receipt, error) bool) {
		var after TrailPosition
		for {
			page, err := j.Trail(ctx, tenant, receipts.CaseID{}, after, trailPage)
			if err != nil {
				yield(receipts.Receipt{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				after = TrailPosition{r.Case, r.Seq}
			}
			if len(page) < trailPage {
				return
			}
		}
	}
}

const casesSQL = snapshotWithoutTermsSQL + `WHERE r.tenant = $1 AND r.case_id > $2 AND r.case_id IN (
  SELECT id FROM recourse.cases WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3) ORDER BY r.case_id, r.id`

// Each streams the runs of a tenant with their case, one case at a time, oldest run first.
func (c *Cases) Each(ctx context.Context, tenant string) iter.Seq2[[]Snapshot, error] {
	return func(yield func([]Snapshot, error) bool) {
		var after receipts.CaseID
		for {
			page, err := snapshots(ctx, c.readDB, casesSQL, tenant, after.String(), trailPage/4)
			if err != nil {
				yield(nil, unavailable(err))
				return
			}
			if len(page) == 0 {
				return
			}
			for len(page) > 0 {
				n := 1
				for n < len(page) && page[n].Case.ID == page[0].Case.ID {
					n++
				}
				if !yield(page[:n], nil) {
					return
				}
				after, page = page[0].Case.ID, page[n:]
			}
		}
	}
}

// Tenants lists the tenants that have cases, runs, escrows, receipts or events.
func (c *Cases) Tenants(ctx context.Context) ([]string, error) {
	var out []string
	err := c.readDB.SelectContext(ctx, &out, `
SELECT tenant FROM recourse.cases UNION SELECT tenant FROM recourse.runs UNION SELECT tenant FROM recourse.escrows UNION SELECT tenant FROM recourse.receipts
UNION SELECT tenant FROM recourse.event_log UNION SELECT tenant FROM recourse.outbox ORDER BY tenant`)
	return out, err
}

// CountRuns counts the runs of a tenant by state.
func (c *Cases) CountRuns(ctx context.Context, tenant string) (map[background.State]int, error) {
	rows, err := c.readDB.QueryContext(ctx, `SELECT state, count(*) FROM recourse.runs WHERE tenant = $1 GROUP BY 1`, tenant)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	out := map[background.State]int{}
	for rows.Next() {
		var s background.State
		var n int
		if err := rows.Scan(&s, &n); err != nil {
			return nil, unavailable(err)
		}
		out[s] = n
	}
	return out, rows.Err()
}

// WithTrail reads a case's runs and receipts at one moment.
func (c *Cases) WithTrail(ctx context.Context, tenant string, caseID receipts.CaseID) (runs []Snapshot, trail []receipts.Receipt, err error) {
	tx, err := c.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	if runs, err = snapshots(ctx, tx, byCaseSQL, tenant, caseID.String()); err != nil {
		return nil, nil, unavailable(err)
	}
	var rows []receiptRow
	if err := tx.SelectContext(ctx, &rows, `SELECT `+receiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 ORDER BY seq`, tenant, caseID.String()); err != nil {
		return nil, nil, unavailable(err)
	}
	for i := range rows {
		trail = append(trail, rows[i].receipt())
	}
	return runs, trail, nil
}

// rollback rolls a transaction back unless it has ended.
func rollback(tx *sql.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

const lastAttemptSQL = `SELECT max(at) FROM recourse.receipts
WHERE tenant = $1 AND case_id = $2 AND subtype IN ('attempt-started', 'attempt-interrupted', 'retry-scheduled', 'dead-lettered', 'answered-late')`
