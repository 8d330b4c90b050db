package search

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// facetGroupReader reads facet groups column by column, as a few arrays: every search reads
// them, and a tenant may have thousands.
type facetGroupReader struct {
	columns []string
	into    []any
	set     []func(groups []facetGroup)
}

// int64Column reads a column of numbers; NULL leaves the group unchanged.
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

// read reads the columns of a tenant's groups that meet conditions, whose first argument is
// the tenant. all is the number of letters in all groups of the tenant. A group whose
// bounds are unknown gets unbounded ranges.
func (r *facetGroupReader) read(ctx context.Context, q pg.Querier, c *conditions) (groups []facetGroup, all int64, err error) {
	var inner, outer strings.Builder
	for i, column := range r.columns {
		name := "c" + string(rune('a'+i))
		inner.WriteString(column + " AS " + name + ", ")
		outer.WriteString(", array_agg(" + name + ") FILTER (WHERE meets)")
	}
	rows, err := q.QueryContext(ctx, `SELECT coalesce(sum(all_letters), 0), count(*) FILTER (WHERE meets)`+outer.String()+`
FROM (SELECT `+inner.String()+`letters AS all_letters, `+c.String()+` AS meets FROM recourse.facet_groups WHERE tenant = $1 AND letters > 0 OFFSET 0) s`, c.args...)
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

// facetGroup is a group of letters with equal facet values that the filter may match.
type facetGroup struct {
	id          int64
	letters     int64
	status      string // only for counts by status
	family      string // family and queue: only for filters by expiry
	queue       string
	checkText   bool       // messages differ: each has to be checked for the text
	diedBy      time.Time  // selects only letters that died at or before this; zero: no bound
	constant    string     // constant part of the messages, when they have to be checked
	valueRange  valueRange // bounds of the order's column over all letters of the group
	selectivity float64    // estimated fraction of the letters within the ranges
	deathRange  valueRange // bounds of the time of death
	maxLag      int64      // most microseconds between a letter's death and when it was last seen
}

// conditions collects parts of a WHERE clause with their arguments.
type conditions struct {
	parts []string
	args  []any
}

// arg adds an argument and returns its parameter.
func (c *conditions) arg(value any) string {
	c.args = append(c.args, value)
	return "$" + strconv.Itoa(len(c.args))
}

// add adds a condition; each ? stands for the value.
func (c *conditions) add(condition string, value any) {
	c.parts = append(c.parts, strings.ReplaceAll(condition, "?", c.arg(value)))
}

func (c *conditions) String() string { return strings.Join(c.parts, " AND ") }

// readFacetGroups reads the groups of a tenant that a filter may match, and the number of
// all letters of the tenant. Groups have their bounds in the order, or without an order
// their status.
func readFacetGroups(ctx context.Context, q pg.Querier, tenant string, f Filter, o Order) (groups []facetGroup, all int64, err error) {
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
		if !short { // short texts have no trigrams to compare with the constant part
			reader.textColumn("CASE WHEN "+inAll+" THEN '' ELSE constant END", func(s *facetGroup, v string) { s.constant = v })
		}
	}
	if o.Column == "" {
		reader.textColumn("status", func(s *facetGroup, v string) { s.status = v })
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

// facetConditions returns the conditions of the filter on facet groups.
func (f *Filter) facetConditions(tenant string) *conditions {
	var c conditions
	c.args = append(c.args, tenant)
	c.parts = append(c.parts, "true")
	s := f.Facets
	for _, is := range []struct{ column, value string }{
		{"status", s.Status}, {"family", s.Family}, {"queue", s.Queue}, {"job_type", s.JobType}, {"outcome", s.Outcome}, {"reason_code", s.Reason},
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
	if s.JobTypePrefix != "" {
		c.add("starts_with(job_type, ?)", s.JobTypePrefix)
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
	if f.expires() { // retention keeps letters of unknown outcome and letters on hold
		c.parts = append(c.parts, "(NOT unresolved OR currency = '') AND NOT held AND status = 'open'")
	}
	return &c
}

func (f *Filter) expires() bool { return !f.ExpiresUntil.IsZero() }

// setDeathBound sets the time by which letters of a group must have died to expire within
// the filter's time. It reports false if letters of the group never expire.
func (f *Filter) setDeathBound(s *facetGroup) bool {
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
