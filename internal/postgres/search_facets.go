package postgres

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"
)

// facetGroupReader reads shapes column by column: as a few arrays, for a tenant may have
// thousands of shapes, and every search reads them.
type facetGroupReader struct {
	columns []string
	into    []any
	set     []func(groups []facetGroup)
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

// facetGroup is one that a filter leaves.
type facetGroup struct {
	id          int64
	letters     int64
	status      string // when they are counted
	family      string // and queue, when they are asked when they expire
	queue       string
	checkText   bool       // its letters' messages differ: whether one contains the text is to be looked at
	diedBy      time.Time  // and at or before this; zero: whenever
	constant    string     // of the messages, when they are to be looked at
	valueRange  valueRange // of the order's column, which no letter of the shape lies outside of
	selectivity float64    // guessed part of its letters in it
	deathRange  valueRange // between which its letters died
	maxLag      int64      // no letter of it was seen longer than this after its death, in microseconds
}

// conditions collects parts of a WHERE clause with their arguments.
type conditions struct {
	parts []string
	args  []any
}

// arg gives the parameter of a value.
func (c *conditions) arg(value any) string {
	c.args = append(c.args, value)
	return "$" + strconv.Itoa(len(c.args))
}

// add adds a condition; each ? is the value.
func (c *conditions) add(condition string, value any) {
	c.parts = append(c.parts, strings.ReplaceAll(condition, "?", c.arg(value)))
}

func (c *conditions) String() string { return strings.Join(c.parts, " AND ") }

// readFacetGroups finds the shapes of a tenant that a filter leaves: with where they lie in an
// order, or when none is given with their standing; and how many letters the tenant has
// in all.
func readFacetGroups(ctx context.Context, q querier, tenant string, f LetterFilter, o LetterOrder) (groups []facetGroup, all int64, err error) {
	c := f.facetConditions(tenant)
	reader := facetGroupReader{}
	reader.int64Column("id", func(s *facetGroup, v int64) { s.id = v })
	reader.int64Column("letters", func(s *facetGroup, v int64) { s.letters = v })
	if f.Facets.Text != "" {
		text := c.arg(f.Facets.Text)
		inAll, inSome, short := "strpos(constant, "+text+") > 0", "NOT whole", tooShortForTrigrams(f.Facets.Text)
		if short {
			inSome += " AND constant NOT IN (" + strings.ReplaceAll(withoutSubstringSQL, "?", text) + ")"
		}
		c.parts = append(c.parts, "("+inAll+" OR "+inSome+")")
		reader.int64Column("(NOT "+inAll+")::int", func(s *facetGroup, v int64) { s.checkText = v == 1 })
		if !short { // which has no grams that a constant part could lack
			reader.textColumn("CASE WHEN "+inAll+" THEN '' ELSE constant END", func(s *facetGroup, v string) { s.constant = v })
		}
	}
	if o.Column == "" {
		reader.textColumn("standing", func(s *facetGroup, v string) { s.status = v })
	} else {
		reader.int64Column(rangeColumns[o.Column][0], func(s *facetGroup, v int64) { s.valueRange.low = v })
		reader.int64Column(rangeColumns[o.Column][1], func(s *facetGroup, v int64) { s.valueRange.high = v })
	}
	if !f.DeadFrom.IsZero() || !f.DeadTo.IsZero() || f.expires() {
		reader.int64Column("first_dead", func(s *facetGroup, v int64) { s.deathRange.low = v })
		reader.int64Column("last_dead", func(s *facetGroup, v int64) { s.deathRange.high = v })
		reader.int64Column("most_lag", func(s *facetGroup, v int64) { s.maxLag = v })
	}
	if f.expires() {
		reader.textColumn("family", func(s *facetGroup, v string) { s.family = v })
		reader.textColumn("queue", func(s *facetGroup, v string) { s.queue = v })
	}
	if groups, all, err = reader.read(ctx, q, c); err != nil {
		return nil, 0, err
	}
	expiring := groups[:0]
	for _, s := range groups {
		if f.setDeathBound(&s) {
			expiring = append(expiring, s)
		}
	}
	return expiring, all, nil
}

// facetConditions is what the filter asks of shapes.
func (f *LetterFilter) facetConditions(tenant string) *conditions {
	var c conditions
	c.args = append(c.args, tenant)
	c.parts = append(c.parts, "true")
	s := f.Facets
	for _, is := range []struct{ column, value string }{
		{"standing", s.Status}, {"family", s.Family}, {"queue", s.Queue}, {"job_type", s.JobType}, {"outcome", s.Outcome}, {"reason_code", s.Reason},
		{"class", s.Class}, {"error_type", s.ErrorType}, {"signature", s.Signature}, {"currency", s.Currency}, {"replayed_by", s.ReplayedBy},
	} {
		if is.value != "" {
			c.add(is.column+" = ?", is.value)
		}
	}
	for _, is := range []struct {
		column string
		value  *bool
	}{{"held", s.Held}, {"eligible", s.Eligible}, {"review", s.Review}} {
		if is.value != nil {
			c.add(is.column+" = ?", *is.value)
		}
	}
	if f.MinAmount != nil || f.MaxAmount != nil { // a task that moves no money has no amount
		c.parts = append(c.parts, "currency <> ''")
	}
	if f.MaxReplays != nil && *f.MaxReplays == 0 {
		c.parts = append(c.parts, "replayed_by = ''")
	}
	if f.MinReplays != nil && *f.MinReplays > 0 {
		c.parts = append(c.parts, "replayed_by <> ''")
	}
	if f.expires() { // what may be unknown and what is held is kept
		c.parts = append(c.parts, "(NOT unresolved OR currency = '') AND NOT held AND standing = 'open'")
	}
	return &c
}

func (f *LetterFilter) expires() bool { return !f.ExpiresUntil.IsZero() }

// setDeathBound sets when letters of a shape must have died to expire when the filter says.
// It is false when none of them ever does.
func (f *LetterFilter) setDeathBound(s *facetGroup) bool {
	if !f.expires() {
		return true
	}
	kept, ends := f.Lifetime(s.family, s.queue)
	if !ends {
		return false
	}
	s.diedBy = f.ExpiresUntil.Add(-kept)
	return true
}
