package postgres

import (
	"context"
	"math"
	"strings"

	"github.com/lib/pq"
)

// shapeRows reads shapes column by column: as a few arrays, for a tenant may have
// thousands of shapes, and every search reads them.
type shapeRows struct {
	columns []string
	into    []any
	set     []func(shapes []shape)
}

// ints reads a column of numbers; where it has none, the shape stays as it is.
func (r *shapeRows) ints(column string, set func(s *shape, v int64)) {
	var values pq.Int64Array
	r.columns, r.into = append(r.columns, "coalesce("+column+", "+missing+")"), append(r.into, &values)
	r.set = append(r.set, func(shapes []shape) {
		for i, v := range values {
			if v != math.MinInt64 {
				set(&shapes[i], v)
			}
		}
	})
}

const missing = `'-9223372036854775808'::bigint`

// texts reads a column of texts.
func (r *shapeRows) texts(column string, set func(s *shape, v string)) {
	var values pq.StringArray
	r.columns, r.into = append(r.columns, column), append(r.into, &values)
	r.set = append(r.set, func(shapes []shape) {
		for i, v := range values {
			set(&shapes[i], v)
		}
	})
}

// read reads the columns of those of a tenant's shapes that meet conditions, whose
// first argument is the tenant; and how many letters all of its shapes have. A shape
// that nothing is known of may lie anywhere.
func (r *shapeRows) read(ctx context.Context, q querier, c *conditions) (shapes []shape, all int64, err error) {
	var inner, outer strings.Builder
	for i, column := range r.columns {
		name := "c" + string(rune('a'+i))
		inner.WriteString(column + " AS " + name + ", ")
		outer.WriteString(", array_agg(" + name + ") FILTER (WHERE meets)")
	}
	rows, err := q.QueryContext(ctx, `SELECT coalesce(sum(all_letters), 0), count(*) FILTER (WHERE meets)`+outer.String()+`
FROM (SELECT `+inner.String()+`letters AS all_letters, `+c.String()+` AS meets FROM recourse.letter_shapes WHERE tenant = $1 AND letters > 0 OFFSET 0) s`, c.args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	var n int
	for rows.Next() {
		if err := rows.Scan(append([]any{&all, &n}, r.into...)...); err != nil {
			return nil, 0, err
		}
	}
	shapes = make([]shape, n)
	for i := range shapes {
		shapes[i] = shape{share: 1, span: everywhere, dead: everywhere, lag: math.MaxInt64}
	}
	for _, set := range r.set {
		set(shapes)
	}
	return shapes, all, rows.Err()
}
