package postgres

import (
	"context"
	"math"
	"strings"

	"github.com/lib/pq"
)

// facetGroupReader reads shapes column by column: as a few arrays, for a tenant may have
// thousands of shapes, and every search reads them.
type facetGroupReader struct {
	columns []string
	into    []any
	set     []func(shapes []facetGroup)
}

// int64Column reads a column of numbers; where it has none, the shape stays as it is.
func (r *facetGroupReader) int64Column(column string, set func(s *facetGroup, v int64)) {
	var values pq.Int64Array
	r.columns, r.into = append(r.columns, "coalesce("+column+", "+missingInt64SQL+")"), append(r.into, &values)
	r.set = append(r.set, func(groups []facetGroup) {
		for i, v := range values {
			if v != math.MinInt64 {
				set(&groups[i], v)
			}
		}
	})
}

const missingInt64SQL = `'-9223372036854775808'::bigint`

// textColumn reads a column of texts.
func (r *facetGroupReader) textColumn(column string, set func(s *facetGroup, v string)) {
	var values pq.StringArray
	r.columns, r.into = append(r.columns, column), append(r.into, &values)
	r.set = append(r.set, func(groups []facetGroup) {
		for i, v := range values {
			set(&groups[i], v)
		}
	})
}

// read reads the columns of those of a tenant's shapes that meet conditions, whose
// first argument is the tenant; and how many letters all of its shapes have. A shape
// that nothing is known of may lie anywhere.
func (r *facetGroupReader) read(ctx context.Context, q querier, c *conditions) (groups []facetGroup, all int64, err error) {
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
	groups = make([]facetGroup, n)
	for i := range groups {
		groups[i] = facetGroup{selectivity: 1, valueRange: unbounded, deathRange: unbounded, maxLag: math.MaxInt64}
	}
	for _, set := range r.set {
		set(groups)
	}
	return groups, all, rows.Err()
}
