package plans

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Item is a dead letter of a plan.
type Item struct {
	Position int64
	Run      background.RunID
	Case     receipts.CaseID
	Subject  string        // of the case; set by Items and Review only
	Head     receipts.Head // of the case when the plan was made
	Amount   int64
	Currency string
	Gate     string // that refused it when the plan was made; empty if none did
	Outcome  string // empty: none yet
	NewRun   background.RunID
	Error    string

	// Set by Items and Review only.

	Escrow       string // reference of the escrow of its case
	Adjudication settlement.Outcome
	DeadAt       time.Time // zero: its run did not die
	Signature    string    // its cause
	ChangedTo    string    // the state of its letter, or of its run, if its case changed since the plan was made; else empty
}

type itemRow struct {
	Position int64         `db:"position"`
	Run      uuid.UUID     `db:"run_id"`
	Case     uuid.UUID     `db:"case_id"`
	Subject  string        `db:"subject"`
	Seq      int64         `db:"seq"`
	Link     []byte        `db:"link"`
	Amount   int64         `db:"amount"`
	Currency string        `db:"currency"`
	Gate     string        `db:"gate"`
	Outcome  string        `db:"outcome"`
	NewRun   uuid.NullUUID `db:"new_run"`
	Error    string        `db:"error"`

	Escrow       string       `db:"escrow"`
	Adjudication string       `db:"adjudication"`
	DeadAt       sql.NullTime `db:"dead_at"`
	Signature    string       `db:"signature"`
	ChangedTo    string       `db:"changed_to"`
	Place        int64        `db:"place"` // among the largest
}

func (r *itemRow) item() Item {
	i := Item{
		Position: r.Position, Run: background.RunID(r.Run), Case: receipts.CaseID(r.Case), Subject: r.Subject, Head: receipts.Head{Seq: r.Seq}, Amount: r.Amount, Currency: r.Currency,
		Gate: r.Gate, Outcome: r.Outcome, NewRun: background.RunID(r.NewRun.UUID), Error: r.Error,
		Escrow: r.Escrow, Adjudication: settlement.Outcome(r.Adjudication), DeadAt: pg.UTCOrZero(r.DeadAt), Signature: r.Signature, ChangedTo: r.ChangedTo,
	}
	copy(i.Head.Link[:], r.Link)
	return i
}

const itemSQL = `SELECT position, run_id, case_id, seq, link, amount, currency, gate, outcome, new_run, error FROM recourse.bulk_items WHERE bulk_id = $1 `

// PendingItems lists the items of a plan without an outcome, in order, after a
// position.
func (p *Store) PendingItems(ctx context.Context, id uuid.UUID, after int64, limit int) ([]Item, error) {
	return p.selectItems(ctx, itemSQL+`AND outcome = '' AND position > $2 ORDER BY position LIMIT $3`, id, after, limit)
}

// Items lists items of a plan in order, after a position. outcome selects:
//   - "": all;
//   - NoOutcome: those without an outcome;
//   - a text that ends in a colon: those whose outcome begins with it;
//   - any other: those with this outcome.
func (p *Store) Items(ctx context.Context, id uuid.UUID, outcome string, after int64, limit int) ([]Item, error) {
	and := `AND position > $2 `
	args := []any{id, after, limit}
	switch {
	case outcome == "":
	case outcome == NoOutcome:
		and += `AND outcome = '' `
	case outcome[len(outcome)-1] == ':':
		and, args = and+`AND starts_with(outcome, $4) `, append(args, outcome)
	default:
		and, args = and+`AND outcome = $4 `, append(args, outcome)
	}
	return p.selectItems(ctx, detailed(`(`+itemSQL+and+` ORDER BY position LIMIT $3)`)+`ORDER BY i.position`, args...)
}

// NoOutcome selects items without an outcome.
const NoOutcome = "-"

func (p *Store) selectItems(ctx context.Context, query string, args ...any) ([]Item, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []itemRow
	if err := p.readDB.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]Item, len(rows))
	for i := range rows {
		out[i] = rows[i].item()
	}
	return out, nil
}

// EachItem visits all items of a plan in order, without keeping them in memory.
func (p *Store) EachItem(ctx context.Context, id uuid.UUID, visit func(*Item)) error {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	rows, err := p.readDB.QueryxContext(ctx, itemSQL+`ORDER BY position`, id)
	if err != nil {
		return pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r itemRow
		if err := rows.StructScan(&r); err != nil {
			return pg.Wrap(err)
		}
		i := r.item()
		visit(&i)
	}
	return pg.Wrap(rows.Err())
}

// recordItemsSQL writes outcomes of items, and counts those it wrote. An existing
// outcome stays, except that failed and refused may become done: a process that lost its lock
// may have done what the next one could not.
//
// The plan is a column of what is joined. With it as a constant, the server expects no item of a plan that is newer than
// its statistics, and compares each item of the plan with each that is written.
const recordItemsSQL = `
WITH t AS MATERIALIZED (
  SELECT $1::uuid AS bulk_id, * FROM unnest($2::bigint[], $3::text[], $4::uuid[], $5::text[]) AS t(position, outcome, new_run, error)
), o AS MATERIALIZED (
  SELECT t.*, i.outcome AS before FROM t JOIN recourse.bulk_items i ON i.bulk_id = t.bulk_id AND i.position = t.position
  WHERE i.outcome = '' OR (i.outcome = 'failed' OR starts_with(i.outcome, 'refused:')) AND t.outcome = 'done' ORDER BY i.position FOR NO KEY UPDATE OF i
), i AS (
  UPDATE recourse.bulk_items i SET outcome = o.outcome, new_run = o.new_run, error = o.error
  FROM o WHERE i.bulk_id = o.bulk_id AND i.position = o.position
  RETURNING i.outcome, o.before, i.currency, i.amount
), n AS (
  SELECT outcome, currency, 1 AS n, amount FROM i UNION ALL SELECT before, currency, -1, -amount FROM i WHERE before <> ''
)
INSERT INTO recourse.bulk_counts AS c (bulk_id, ran, word, currency, items, amount)
SELECT $1, true, outcome, currency, sum(n), sum(amount) FROM n GROUP BY outcome, currency ORDER BY outcome, currency
ON CONFLICT (bulk_id, ran, word, currency) DO UPDATE SET items = c.items + excluded.items, amount = c.amount + excluded.amount`

// RecordItems writes the outcomes of items. An item that has an outcome keeps it, so
// that the same may be written again; only failed and refused may become done.
func (p *Store) RecordItems(ctx context.Context, id uuid.UUID, items []Item) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(4, len(items))
	for _, i := range items {
		c.Int(i.Position)
		c.Str(i.Outcome)
		c.ID(i.NewRun)
		c.Str(i.Error)
	}
	_, err := pg.Exec(ctx, p.readDB.DB, failpoint.BulkItem, recordItemsSQL, append([]any{id}, c.Args()...)...)
	return pg.Wrap(err)
}

// lockCheckTimeout bounds the query by which a holder checks its lock; if it takes longer,
// the lock may be lost.
const lockCheckTimeout = 3 * time.Second
