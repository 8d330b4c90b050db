package plans

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/settlement"
)

// ByAmount is the kind of a Difference of amounts. The others are outcome, currency, cause and escrow.
const ByAmount = "amount"

// Difference is a group of items that differ from most of the plan.
type Difference struct {
	By       string
	Usual    string // what more than half of the items have; empty by amount
	Currency string // by amount: of the items that are compared
	Median   int64  // by amount: of theirs, in minor units
	Items    int64
	Money    settlement.Sums
	Examples []Item // with the largest amounts
}

// farAbove is how many times the median of its currency an amount exceeds that differs.
const farAbove = 10

// examplesOfEach is how many items of a Difference are listed.
const examplesOfEach = 5

var (
	// otherSQL is the items that differ, once for each way. A value that more than half of the items have is the usual one;
	// where no value has, none differs. The median is of the amounts above zero.
	otherSQL = reviewedSQL + `, d AS MATERIALIZED (` + detailed("i") + `),
v AS (SELECT d.position, k.kind, k.value FROM d CROSS JOIN LATERAL (VALUES ('outcome', d.adjudication), ('currency', d.currency), ('cause', d.signature), ('escrow', d.escrow)) k(kind, value)),
usual AS (SELECT kind, value FROM v GROUP BY kind, value HAVING 2 * count(*) > (SELECT count(*) FROM d)),
medians AS (SELECT currency, percentile_disc(0.5) WITHIN GROUP (ORDER BY amount) AS median FROM d WHERE amount > 0 AND currency <> '' GROUP BY currency),
other AS (
SELECT v.kind, u.value AS usual, '' AS compared, 0::bigint AS median, v.position FROM v JOIN usual u ON u.kind = v.kind WHERE v.value <> u.value
UNION ALL SELECT 'amount', '', m.currency, m.median, d.position FROM d JOIN medians m ON m.currency = d.currency WHERE d.amount::numeric > $3 * m.median::numeric) `

	differencesSQL = otherSQL + `SELECT o.kind, o.usual, o.compared, o.median, d.currency, count(*) AS items, sum(d.amount) AS amount
FROM other o JOIN d USING (position) GROUP BY 1, 2, 3, 4, 5 ORDER BY array_position(ARRAY['outcome', 'currency', 'cause', 'escrow', 'amount'], o.kind), 3, 5`

	differentItemsSQL = otherSQL + `SELECT d.*, o.kind, o.compared
FROM (SELECT o.kind, o.compared, o.position, row_number() OVER (PARTITION BY o.kind, o.compared ORDER BY d.amount DESC, o.position) AS place FROM other o JOIN d USING (position)) o
JOIN d USING (position) WHERE o.place <= $4 ORDER BY o.kind, o.compared, o.place`
)

// differences reads in what the items of a plan differ from most of them.
func differences(ctx context.Context, q sqlx.QueryerContext, id uuid.UUID) ([]Difference, error) {
	var counts []struct {
		Kind     string         `db:"kind"`
		Usual    string         `db:"usual"`
		Compared string         `db:"compared"`
		Median   int64          `db:"median"`
		Currency string         `db:"currency"`
		Items    int64          `db:"items"`
		Amount   settlement.Sum `db:"amount"`
	}
	if err := sqlx.SelectContext(ctx, q, &counts, differencesSQL, id, MaxReviewed, farAbove); err != nil || len(counts) == 0 {
		return nil, pg.Wrap(err)
	}
	var out []Difference
	for _, c := range counts {
		if n := len(out); n == 0 || out[n-1].By != c.Kind || out[n-1].Currency != c.Compared {
			out = append(out, Difference{By: c.Kind, Usual: c.Usual, Currency: c.Compared, Median: c.Median, Money: settlement.Sums{}})
		}
		last := &out[len(out)-1]
		last.Items += c.Items
		last.Money.Add(c.Currency, c.Amount)
	}
	var items []struct {
		itemRow
		Kind     string `db:"kind"`
		Compared string `db:"compared"`
	}
	if err := sqlx.SelectContext(ctx, q, &items, differentItemsSQL, id, MaxReviewed, farAbove, examplesOfEach); err != nil {
		return nil, pg.Wrap(err)
	}
	for n := range out {
		for i := range items {
			if items[i].Kind == out[n].By && items[i].Compared == out[n].Currency {
				out[n].Examples = append(out[n].Examples, items[i].item())
			}
		}
	}
	return out, nil
}
