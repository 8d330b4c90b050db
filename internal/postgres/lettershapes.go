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
	standing string // when they are counted
	family   string // and queue, when they are asked when they expire
	queue    string
	check    bool      // its letters' messages differ: whether one contains the text is to be looked at
	until    time.Time // and at or before this; zero: whenever
	constant string    // of the messages, when they are to be looked at
	span     span      // of the order's column, which no letter of the shape lies outside of
	share    float64   // guessed part of its letters in it
	dead     span      // between which its letters died
	lag      int64     // no letter of it was seen longer than this after its death, in microseconds
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

// shapesOf finds the shapes of a tenant that a filter leaves: with where they lie in an
// order, or when none is given with their standing; and how many letters the tenant has
// in all.
func shapesOf(ctx context.Context, q querier, tenant string, f LetterFilter, o LetterOrder) (left []shape, all int64, err error) {
	c := f.ofShapes(tenant)
	r := shapeRows{}
	r.ints("id", func(s *shape, v int64) { s.id = v })
	r.ints("letters", func(s *shape, v int64) { s.letters = v })
	if f.Shape.Text != "" {
		text := c.arg(f.Shape.Text)
		inAll, inSome, short := "strpos(constant, "+text+") > 0", "NOT whole", isShort(f.Shape.Text)
		if short {
			inSome += " AND constant NOT IN (" + strings.ReplaceAll(shortAbsentSQL, "?", text) + ")"
		}
		c.parts = append(c.parts, "("+inAll+" OR "+inSome+")")
		r.ints("(NOT "+inAll+")::int", func(s *shape, v int64) { s.check = v == 1 })
		if !short { // which has no grams that a constant part could lack
			r.texts("CASE WHEN "+inAll+" THEN '' ELSE constant END", func(s *shape, v string) { s.constant = v })
		}
	}
	if o.Column == "" {
		r.texts("standing", func(s *shape, v string) { s.standing = v })
	} else {
		r.ints(bounds[o.Column][0], func(s *shape, v int64) { s.span.low = v })
		r.ints(bounds[o.Column][1], func(s *shape, v int64) { s.span.high = v })
	}
	if !f.DeadFrom.IsZero() || !f.DeadTo.IsZero() || f.expires() {
		r.ints("first_dead", func(s *shape, v int64) { s.dead.low = v })
		r.ints("last_dead", func(s *shape, v int64) { s.dead.high = v })
		r.ints("most_lag", func(s *shape, v int64) { s.lag = v })
	}
	if f.expires() {
		r.texts("family", func(s *shape, v string) { s.family = v })
		r.texts("queue", func(s *shape, v string) { s.queue = v })
	}
	if left, all, err = r.read(ctx, q, c); err != nil {
		return nil, 0, err
	}
	lasting := left[:0]
	for _, s := range left {
		if f.lasts(&s) {
			lasting = append(lasting, s)
		}
	}
	return lasting, all, nil
}

// ofShapes is what the filter asks of shapes.
func (f *LetterFilter) ofShapes(tenant string) *conditions {
	var c conditions
	c.args = append(c.args, tenant)
	c.parts = append(c.parts, "true")
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
		c.parts = append(c.parts, "(NOT unresolved OR currency = '') AND NOT held AND standing = 'open'")
	}
	return &c
}

func (f *LetterFilter) expires() bool { return !f.ExpiresUntil.IsZero() }

// lasts sets when letters of a shape must have died to expire when the filter says.
// It is false when none of them ever does.
func (f *LetterFilter) lasts(s *shape) bool {
	if !f.expires() {
		return true
	}
	kept, ends := f.Lifetime(s.family, s.queue)
	if !ends {
		return false
	}
	s.until = f.ExpiresUntil.Add(-kept)
	return true
}
