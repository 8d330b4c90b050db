package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// shape is one that a filter leaves.
type shape struct {
	id       int64
	letters  int64
	standing string
	check    bool      // its letters' messages differ: whether one contains the text is to be looked at
	until    time.Time // and at or before this; zero: whenever
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

// shapes finds the shapes of a tenant that a filter leaves, and how many letters the
// tenant has in all.
func (j *Journal) shapes(ctx context.Context, tenant string, f LetterFilter) (left []shape, all int64, err error) {
	return shapesOf(ctx, j.finding, tenant, f)
}

func shapesOf(ctx context.Context, q querier, tenant string, f LetterFilter) (left []shape, all int64, err error) {
	var c conditions
	c.add("tenant = ?", tenant)
	c.parts = append(c.parts, "letters > 0")
	s := f.Shape
	for _, is := range []struct{ column, value string }{
		{"standing", s.Standing}, {"family", s.Family}, {"queue", s.Queue}, {"job_type", s.JobType}, {"outcome", s.Outcome}, {"reason_code", s.Reason},
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
		c.parts = append(c.parts, "NOT unresolved AND NOT held AND standing = 'open'")
	}
	check := "false"
	if s.Text != "" {
		inAll := "strpos(constant, " + c.arg(s.Text) + ") > 0"
		check = "NOT " + inAll
		c.parts = append(c.parts, "("+inAll+" OR NOT whole)")
	}
	rows, err := q.QueryContext(ctx, `SELECT id, letters, standing, family, queue, `+check+`,
  (SELECT coalesce(sum(letters), 0) FROM recourse.letter_shapes WHERE tenant = $1 AND letters > 0)
FROM recourse.letter_shapes WHERE `+c.String(), c.args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var one shape
		var family, queue string
		if err := rows.Scan(&one.id, &one.letters, &one.standing, &family, &queue, &one.check, &all); err != nil {
			return nil, 0, err
		}
		if f.lasts(&one, family, queue) {
			left = append(left, one)
		}
	}
	return left, all, rows.Err()
}

func (f *LetterFilter) expires() bool { return !f.ExpiresUntil.IsZero() }

// lasts sets when letters of a shape must have died to expire when the filter says.
// It is false when none of them ever does.
func (f *LetterFilter) lasts(s *shape, family, queue string) bool {
	if !f.expires() {
		return true
	}
	kept, ends := f.Lifetime(family, queue)
	if !ends {
		return false
	}
	s.until = f.ExpiresUntil.Add(-kept)
	return true
}
