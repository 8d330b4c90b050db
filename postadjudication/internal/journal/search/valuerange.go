package search

import (
	"math"
	"time"
)

// valueRange is a range of an order's column, both ends inclusive. Times are in
// microseconds since 1970.
type valueRange struct{ low, high int64 }

var unbounded = valueRange{math.MinInt64, math.MaxInt64}

func (s valueRange) empty() bool { return s.low > s.high }

func (s valueRange) intersect(t valueRange) valueRange {
	return valueRange{max(s.low, t.low), min(s.high, t.high)}
}

// rangeColumns are the columns with the bounds of a group in an order.
var rangeColumns = map[Column][2]string{
	ByDeath: {"first_dead", "last_dead"}, BySeen: {"first_seen", "last_seen"}, ByAmount: {"least_amount", "most_amount"}, ByAttempts: {"least_attempts", "most_attempts"},
}

// orderRange returns the filter's own range of the order's column.
func (f *Filter) orderRange(o Order) valueRange {
	s := unbounded
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

// clip narrows the ranges of each group, and of the plan, to what can match after a
// position. Groups without any match there are removed.
func (p *AccessPlan) clip(after Position) {
	if p.Empty() {
		return
	}
	limits := p.filter.orderRange(p.order)
	if !after.Run.IsZero() {
		if p.order.Descending {
			limits.high = min(limits.high, after.Value)
		} else {
			limits.low = max(limits.low, after.Value)
		}
	}
	kept := p.groups[:0]
	for _, s := range p.groups {
		full := s.valueRange
		if s.valueRange = full.intersect(limits).intersect(valueRange{math.MinInt64, p.maxSeenAt(&s)}); s.valueRange.empty() {
			continue
		}
		died := s.deathRange.intersect(p.deathRange(&s))
		if died.empty() {
			continue
		}
		if s.selectivity *= s.valueRange.fraction(full); p.order.Column != ByDeath {
			s.selectivity *= died.fraction(s.deathRange)
		}
		s.deathRange = died
		kept = append(kept, s)
	}
	p.groups, p.allGroups = kept, p.allGroups && len(kept) > 0
	p.envelope()
}

// envelope sets the smallest range that contains those of all groups.
func (p *AccessPlan) envelope() {
	p.rangeKnown, p.valueRange = true, valueRange{math.MaxInt64, math.MinInt64}
	for i := range p.groups {
		p.valueRange = valueRange{min(p.valueRange.low, p.groups[i].valueRange.low), max(p.valueRange.high, p.groups[i].valueRange.high)}
	}
}

// deathRange returns the times of death in a group that can match.
func (sel *selection) deathRange(s *facetGroup) valueRange {
	limits := sel.filter.orderRange(Order{Column: ByDeath})
	if !s.diedBy.IsZero() {
		limits.high = min(limits.high, s.diedBy.UnixMicro())
	}
	return limits
}

// maxSeenAt returns an upper bound of last_seen_at for letters of the group that died
// within the range.
func (p *AccessPlan) maxSeenAt(s *facetGroup) int64 {
	until := p.deathRange(s).high
	if p.order.Column != BySeen || until == math.MaxInt64 || s.maxLag > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return until + s.maxLag
}

// fraction estimates the part of a group's range that lies within s.
func (s valueRange) fraction(whole valueRange) float64 {
	if whole == unbounded || whole.low == whole.high {
		return 1
	}
	return (float64(s.high) - float64(s.low) + 1) / (float64(whole.high) - float64(whole.low) + 1)
}

// estimate estimates how many letters of a group have to be checked.
func (s *facetGroup) estimate() int64 { return 1 + int64(float64(s.letters)*s.selectivity) }

// restrictToRange restricts l to the plan's range of the order.
func (p *AccessPlan) restrictToRange(c *conditions) {
	if !p.rangeKnown {
		return
	}
	for _, is := range []struct {
		sign  string
		value int64
		says  bool
	}{{" >= ?", p.valueRange.low, p.valueRange.low != math.MinInt64}, {" <= ?", p.valueRange.high, p.valueRange.high != math.MaxInt64}} {
		if is.says {
			c.add("l."+string(p.order.Column)+is.sign, p.order.columnValue(is.value))
		}
	}
}

// columnValue converts a position's value to the type of its column.
func (o Order) columnValue(v int64) any {
	if o.Column.isTime() {
		return time.UnixMicro(v).UTC()
	}
	return v
}
