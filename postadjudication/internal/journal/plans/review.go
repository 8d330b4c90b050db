package plans

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/settlement"
)

// Review is what the items of a plan are now. It covers the first MaxReviewed items of the plan, all of one moment.
type Review struct {
	Causes  []Cause          // the most frequent first, by currency
	Largest []Item           // with the largest amounts of each currency, with their subjects and causes
	Changed map[string]int64 // items whose case changed since the plan was made, by the state of their letter, or of their run
	Differs []Difference     // by outcome, currency, cause, escrow and amount, in this order
}

// Cause counts the items of one cause and currency, and adds up their amounts.
type Cause struct {
	Signature string         `db:"signature"`
	Currency  string         `db:"currency"`
	Items     int64          `db:"items"`
	Amount    settlement.Sum `db:"amount"`
}

// MaxReviewed bounds the items that a Review reads: people wait for it.
const MaxReviewed = 50_000

const (
	// signatureSQL is the signature of an item's letter. The search index has no letter that was purged, and none of a case
	// whose fork was cancelled.
	signatureSQL  = `coalesce(nullif(s.signature, ''), nullif(r.error_type, ''), r.reason)`
	itemLetterSQL = ` JOIN recourse.runs r ON r.id = i.run_id LEFT JOIN recourse.letters l ON l.run_id = i.run_id LEFT JOIN recourse.facet_groups s ON s.id = l.facet_group `

	// detailsSQL adds to items i what is shown of each.
	detailsSQL = `SELECT i.*, c.subject, coalesce(e.reference, '') AS escrow, coalesce(nullif(s.outcome, ''), c.adjudication) AS adjudication, r.dead_at, ` + signatureSQL + ` AS signature
FROM %s i JOIN recourse.cases c ON c.id = i.case_id LEFT JOIN recourse.escrows e ON e.id = c.escrow_id` + itemLetterSQL

	reviewedSQL = `WITH i AS MATERIALIZED (` + itemSQL + `ORDER BY position LIMIT $2) `
	causesSQL   = reviewedSQL + `SELECT ` + signatureSQL + ` AS signature, i.currency, count(*) AS items, sum(i.amount) AS amount FROM i` + itemLetterSQL + `GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2`
	changedSQL  = reviewedSQL + `SELECT CASE WHEN r.letter <> '' THEN r.letter ELSE r.state END, count(*) FROM i JOIN recourse.cases c ON c.id = i.case_id JOIN recourse.runs r ON r.id = i.run_id
WHERE (c.last_seq, c.last_link) <> (i.seq, i.link) GROUP BY 1`
)

// largestOfEach is how many items of each currency a Review has.
const largestOfEach = 5

// detailed returns the statement that adds to items what is shown of each.
func detailed(items string) string { return fmt.Sprintf(detailsSQL, items) }

var largestSQL = reviewedSQL + detailed(`(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY currency ORDER BY amount DESC, position) AS place FROM i WHERE currency <> '') i WHERE place <= $3)`) +
	`ORDER BY i.currency, i.place`

// Review reads what the items of a plan are now.
func (p *Store) Review(ctx context.Context, id uuid.UUID) (out Review, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	tx, err := p.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return out, pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx.Tx)) }()
	if err := tx.SelectContext(ctx, &out.Causes, causesSQL, id, MaxReviewed); err != nil {
		return out, pg.Wrap(err)
	}
	var largest []itemRow
	if err := tx.SelectContext(ctx, &largest, largestSQL, id, MaxReviewed, largestOfEach); err != nil {
		return out, pg.Wrap(err)
	}
	for i := range largest {
		out.Largest = append(out.Largest, largest[i].item())
	}
	if out.Differs, err = differences(ctx, tx, id); err != nil {
		return out, err
	}
	out.Changed, err = countWords(ctx, tx, changedSQL, id, MaxReviewed)
	return out, err
}

// countWords reads rows of a word and a count.
func countWords(ctx context.Context, q sqlx.QueryerContext, query string, args ...any) (map[string]int64, error) {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := map[string]int64{}
	for rows.Next() {
		var word string
		var n int64
		if err := rows.Scan(&word, &n); err != nil {
			return nil, pg.Wrap(err)
		}
		out[word] = n
	}
	return out, pg.Wrap(rows.Err())
}
