package trail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

// Reader reads a database. It is safe for concurrent use.
type Reader struct{ db *sql.DB }

// New returns a reader of a database whose schema is this program's: see stored.CheckSchema.
func New(db *sql.DB) *Reader { return &Reader{db} }

// failed returns err as one of this package; nil for nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("trail: %w", err)
}

// atOneMoment runs read in a transaction that sees the database at one moment.
func (r *Reader) atOneMoment(ctx context.Context, read func(*sql.Tx) error) (err error) {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return failed(err)
	}
	defer func() {
		if end := tx.Rollback(); end != nil && !errors.Is(end, sql.ErrTxDone) {
			err = errors.Join(err, failed(end))
		}
	}()
	return failed(read(tx))
}

// eachRow reads the rows of a query one by one. The query sees one moment; no row is kept.
func eachRow(ctx context.Context, q stored.Querier, read func(*sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, q stored.Querier, read func(*sql.Rows) (T, error), query string, args ...any) (out []T, err error) {
	err = eachRow(ctx, q, func(rows *sql.Rows) error {
		one, err := read(rows)
		if err == nil {
			out = append(out, one)
		}
		return err
	}, query, args...)
	return out, err
}

// scanText reads a row of one text.
func scanText(rows *sql.Rows) (text string, err error) {
	err = rows.Scan(&text)
	return text, err
}

// Tenants lists the tenants that have a row in any table with tenants that the audit of a tenant reads. A circuit
// breaker over all tenants belongs to the tenant "*".
func (r *Reader) Tenants(ctx context.Context) (out []string, err error) {
	out, err = collect(ctx, r.db, scanText, `
SELECT tenant FROM recourse.cases UNION SELECT tenant FROM recourse.runs UNION SELECT tenant FROM recourse.escrows UNION SELECT tenant FROM recourse.receipts
UNION SELECT tenant FROM recourse.event_log UNION SELECT tenant FROM recourse.outbox UNION SELECT tenant FROM recourse.operation_logs
UNION SELECT tenant FROM recourse.keys UNION SELECT tenant FROM recourse.people UNION SELECT tenant FROM recourse.policies UNION SELECT tenant FROM recourse.rules
UNION SELECT tenant FROM recourse.bulks UNION SELECT tenant FROM recourse.letters UNION SELECT tenant FROM recourse.annotations UNION SELECT tenant FROM recourse.rule_replays
UNION SELECT tenant FROM recourse.handlers UNION SELECT tenant FROM recourse.leases UNION SELECT tenant FROM recourse.lookups UNION SELECT tenant FROM recourse.facet_groups
UNION SELECT tenant FROM recourse.webhooks UNION SELECT tenant FROM recourse.webhook_positions
UNION SELECT coalesce(nullif(tenant, ''), '*') FROM recourse.circuit_breakers ORDER BY tenant`)
	return out, failed(err)
}

const (
	ownersSQL     = `SELECT id, tenant FROM recourse.cases WHERE id = ANY($1::uuid[]) UNION SELECT case_id, tenant FROM recourse.receipts WHERE case_id = ANY($1::uuid[]) AND seq = 1 ORDER BY 2`
	countCasesSQL = `SELECT count(*) FROM recourse.cases WHERE tenant IN (SELECT unnest($1::text[])) AND kind <> 'operations'`
)

// Owners returns by case the tenants that have the case or its first receipt. Unknown cases are
// left out.
func (r *Reader) Owners(ctx context.Context, cases []receipts.CaseID) (map[receipts.CaseID][]string, error) {
	texts := make(pq.StringArray, len(cases))
	for i, id := range cases {
		texts[i] = id.String()
	}
	out := map[receipts.CaseID][]string{}
	err := eachRow(ctx, r.db, func(rows *sql.Rows) error {
		var id uuid.UUID
		var tenant string
		if err := rows.Scan(&id, &tenant); err != nil {
			return err
		}
		out[receipts.CaseID(id)] = append(out[receipts.CaseID(id)], tenant)
		return nil
	}, ownersSQL, texts)
	return out, failed(err)
}

// CountCases counts the cases of the tenants, except those of operation logs, which have no run.
func (r *Reader) CountCases(ctx context.Context, tenants []string) (n int, err error) {
	err = r.db.QueryRowContext(ctx, countCasesSQL, pq.StringArray(tenants)).Scan(&n)
	return n, failed(err)
}

// CaseOf returns the case of a tenant's transaction; found is false if there is none.
func (r *Reader) CaseOf(ctx context.Context, tenant, transaction string) (id receipts.CaseID, found bool, err error) {
	var row uuid.UUID
	err = r.db.QueryRowContext(ctx, `SELECT id FROM recourse.cases WHERE tenant = $1 AND kind = 'settlement' AND subject = $2`, tenant, transaction).Scan(&row)
	if errors.Is(err, sql.ErrNoRows) {
		return id, false, nil
	}
	return receipts.CaseID(row), err == nil, failed(err)
}

// OnePersonTenants lists the tenants for whose money one person is enough.
func (r *Reader) OnePersonTenants(ctx context.Context) (out []string, err error) {
	out, err = collect(ctx, r.db, scanText, `SELECT tenant FROM recourse.people WHERE people = 1 ORDER BY tenant`)
	return out, failed(err)
}

// GuardsOff names what protects evidence and is missing, off, or defined otherwise than by this version: triggers as
// table.trigger, functions, constraints and unique indexes after their kind.
func (r *Reader) GuardsOff(ctx context.Context) (names []string, err error) {
	off, err := stored.GuardsOff(ctx, r.db)
	for _, g := range off {
		names = append(names, g.String())
	}
	return names, failed(err)
}

// trailPage is how many receipts are read at once.
const trailPage = 2000

// Trail reads receipts of a tenant's case in order, strictly after a sequence.
func (r *Reader) Trail(ctx context.Context, tenant string, id receipts.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	rs, err := stored.Trail(ctx, r.db, tenant, id, stored.TrailCursor{Case: id, Seq: after}, limit)
	return rs, failed(err)
}

// Receipts streams a tenant's receipts by case and sequence. It reads pages, each at a moment of
// its own.
func (r *Reader) Receipts(ctx context.Context, tenant string) iter.Seq2[receipts.Receipt, error] {
	return func(yield func(receipts.Receipt, error) bool) {
		var after stored.TrailCursor
		for {
			page, err := stored.Trail(ctx, r.db, tenant, receipts.CaseID{}, after, trailPage)
			if err != nil {
				yield(receipts.Receipt{}, failed(err))
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
				after = stored.TrailCursor{Case: one.Case, Seq: one.Seq}
			}
			if len(page) < trailPage {
				return
			}
		}
	}
}
