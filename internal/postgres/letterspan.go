package postgres

import (
	"math"
	"time"
)

// span is a part of an order, by its column: from low to high, both included. Times
// are in microseconds since 1970.
type span struct{ low, high int64 }

var everywhere = span{math.MinInt64, math.MaxInt64}

func (s span) empty() bool { return s.low > s.high }

func (s span) within(t span) span { return span{max(s.low, t.low), min(s.high, t.high)} }

// bounds are the columns with the bounds of a shape in an order.
var bounds = map[LetterColumn][2]string{
	ByDeath: {"first_dead", "last_dead"}, BySeen: {"first_seen", "last_seen"}, ByAmount: {"least_amount", "most_amount"}, ByAttempts: {"least_attempts", "most_attempts"},
}

// span is where the filter's own range lies in an order.
func (f *LetterFilter) span(o LetterOrder) span {
	s := everywhere
	least, most := f.MinAmount, f.MaxAmount
	switch o.Column {
	case ByDeath:
		if !f.DeadFrom.IsZero() {
			s.low = f.DeadFrom.UnixMicro()
		}
		if !f.DeadTo.IsZero() {
			s.high = f.DeadTo.UnixMicro() - 1
		}
		return s
	case BySeen:
		return s
	case ByAttempts:
		least, most = f.MinAttempts, f.MaxAttempts
	}
	if least != nil {
		s.low = *least
	}
	if most != nil {
		s.high = *most
	}
	return s
}

// narrow sets where what is looked for can be behind a place, of each shape and of all. Shapes that have nothing there are left out.
func (p *letterPlan) narrow(after LetterPlace) {
	if p.nothing() {
		return
	}
	room := p.filter.span(p.order)
	if !after.Run.IsZero() {
		if p.order.Descending {
			room.high = min(room.high, after.Value)
		} else {
			room.low = max(room.low, after.Value)
		}
	}
	left := p.shapes[:0]
	for _, s := range p.shapes {
		full := s.span
		if s.span = full.within(room).within(span{math.MinInt64, p.seenUntil(&s)}); s.span.empty() {
			continue
		}
		died := s.dead.within(p.died(&s))
		if died.empty() {
			continue
		}
		if s.share *= s.span.part(full); p.order.Column != ByDeath {
			s.share *= died.part(s.dead)
		}
		s.dead = died
		left = append(left, s)
	}
	p.shapes, p.all = left, p.all && len(left) > 0
	p.around()
}

// around sets the span of all shapes that are left.
func (p *letterPlan) around() {
	p.spans, p.span = true, span{math.MaxInt64, math.MinInt64}
	for i := range p.shapes {
		p.span = span{min(p.span.low, p.shapes[i].span.low), max(p.span.high, p.shapes[i].span.high)}
	}
}

// died is when the letters of a shape that are looked for died.
func (p *letterPlan) died(s *shape) span {
	room := p.filter.span(LetterOrder{Column: ByDeath})
	if !s.until.IsZero() {
		room.high = min(room.high, s.until.UnixMicro())
	}
	return room
}

// seenUntil is when letters of a shape that died by the end of the filter's range were
// seen last at most.
func (p *letterPlan) seenUntil(s *shape) int64 {
	until := p.died(s).high
	if p.order.Column != BySeen || until == math.MaxInt64 || s.lag > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return until + s.lag
}

// part guesses how much of a shape's span lies within one in it.
func (s span) part(of span) float64 {
	if of == everywhere || of.low == of.high {
		return 1
	}
	return (float64(s.high) - float64(s.low) + 1) / (float64(of.high) - float64(of.low) + 1)
}

// left guesses how many letters of a shape are to be looked at.
func (s *shape) left() int64 { return 1 + int64(float64(s.letters)*s.share) }

// bound restricts l to a span of the order, where that says anything.
func (p *letterPlan) bound(c *conditions) {
	if !p.spans {
		return
	}
	for _, is := range []struct {
		sign  string
		value int64
		says  bool
	}{{" >= ?", p.span.low, p.span.low != math.MinInt64}, {" <= ?", p.span.high, p.span.high != math.MaxInt64}} {
		if is.says {
			c.add("l."+string(p.order.Column)+is.sign, p.order.value(is.value))
		}
	}
}

// value is a place's value as its column has it.
func (o LetterOrder) value(v int64) any {
	if o.Column.isTime() {
		return time.UnixMicro(v).UTC()
	}
	return v
}
