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

// Review is what the items of a plan are now. It covers the first MaxReviewed items of the plan, all of one moment. An item
// whose case changed since the plan was made is in Changed and ChangedItems only: the plan leaves it as it is.
type Review struct {
	Ready   []Cause      // items that no gate refused when the plan was made, by currency, without their causes
	Causes  []Cause      // the most frequent first, by currency
	Largest []Item       // with the largest amounts of each currency, with their subjects and causes
	Differs []Difference // by outcome, currency, cause, escrow and amount, in this order

	Changed      map[string]int64 // by the state of their letter, or of their run
	ChangedItems []Item           // with the largest amounts
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
	// changedToSQL is what an item i became whose case c changed since the plan was made.
	changedToSQL = `CASE WHEN r.letter <> '' THEN r.letter ELSE r.state END`
	changedIf    = `(c.last_seq, c.last_link) <> `

	// signatureSQL is the signature of an item's letter. The search index has no letter that was purged, and none of a case
	// whose fork was cancelled.
	signatureSQL  = `coalesce(nullif(s.signature, ''), nullif(r.error_type, ''), r.reason)`
	itemLetterSQL = ` JOIN recourse.runs r ON r.id = i.run_id LEFT JOIN recourse.letters l ON l.run_id = i.run_id LEFT JOIN recourse.facet_groups s ON s.id = l.facet_group `

	// detailsSQL adds to items i what is shown of each.
	detailsSQL = `SELECT i.*, c.subject, coalesce(e.reference, '') AS escrow, coalesce(nullif(s.outcome, ''), c.adjudication) AS adjudication, r.dead_at, ` + signatureSQL + ` AS signature,
CASE WHEN i.outcome = '' AND ` + changedIf + `(i.seq, i.link) THEN ` + changedToSQL + ` ELSE '' END AS changed_to
FROM %s i JOIN recourse.cases c ON c.id = i.case_id LEFT JOIN recourse.escrows e ON e.id = c.escrow_id` + itemLetterSQL

	// reviewedSQL has the first items of a plan as a, and as i those of them that have not changed.
	reviewedSQL = `WITH a AS MATERIALIZED (` + itemSQL + `ORDER BY position LIMIT $2), i AS MATERIALIZED (SELECT a.* FROM a JOIN recourse.cases c ON c.id = a.case_id WHERE NOT ` + changedIf + `(a.seq, a.link)) `
	readySQL    = reviewedSQL + `SELECT '' AS signature, currency, count(*) AS items, sum(amount) AS amount FROM i WHERE gate = '' GROUP BY currency ORDER BY currency`
	causesSQL   = reviewedSQL + `SELECT ` + signatureSQL + ` AS signature, i.currency, count(*) AS items, sum(i.amount) AS amount FROM i` + itemLetterSQL + `GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2`
	changedSQL  = reviewedSQL + `SELECT ` + changedToSQL + `, count(*) FROM a JOIN recourse.cases c ON c.id = a.case_id JOIN recourse.runs r ON r.id = a.run_id
WHERE ` + changedIf + `(a.seq, a.link) GROUP BY 1`
)

// largestOfEach is how many items of each currency, and of those that changed, a Review has.
const largestOfEach = 5

// detailed returns the statement that adds to items what is shown of each.
func detailed(items string) string { return fmt.Sprintf(detailsSQL, items) }

var changedItemsSQL = reviewedSQL + detailed(`(SELECT a.* FROM a JOIN recourse.cases c ON c.id = a.case_id WHERE `+changedIf+`(a.seq, a.link) ORDER BY a.amount DESC, a.position LIMIT $3)`) +
	`ORDER BY i.amount DESC, i.position`

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
	if err := tx.SelectContext(ctx, &out.Ready, readySQL, id, MaxReviewed); err != nil {
		return out, pg.Wrap(err)
	}
	for query, to := range map[string]*[]Item{largestSQL: &out.Largest, changedItemsSQL: &out.ChangedItems} {
		var rows []itemRow
		if err := tx.SelectContext(ctx, &rows, query, id, MaxReviewed, largestOfEach); err != nil {
			return out, pg.Wrap(err)
		}
		for i := range rows {
			*to = append(*to, rows[i].item())
		}
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
