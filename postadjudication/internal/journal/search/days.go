package search

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/lib/pq"
)

// A range of the time of death is whole days in UTC and, at its ends, parts of days. The letters of a
// day are counted in recourse.facet_group_days; those of a part are read.

// dayRange is a range of days since 1970-01-01, without to.
type dayRange struct{ from, to int64 }

const secondsPerDay = 24 * 60 * 60

func startOfDay(day int64) time.Time { return time.Unix(day*secondsPerDay, 0).UTC() }

// dayOf returns the day of a time.
func dayOf(t time.Time) int64 { return int64(math.Floor(float64(t.Unix()) / secondsPerDay)) }

// wholeDays returns the days whose letters the filter's bounds of the time of death select as a whole.
func (f *Filter) wholeDays() dayRange {
	days := dayRange{math.MinInt32, math.MaxInt32}
	if !f.DeadFrom.IsZero() {
		days.from = dayOf(f.DeadFrom.Add(secondsPerDay*time.Second - 1))
	}
	if !f.DeadTo.IsZero() {
		days.to = dayOf(f.DeadTo)
	}
	return days
}

// partBefore returns the filter for the part of a day before the whole days, if there is one.
func (f *Filter) partBefore(days dayRange) (part Filter, ok bool) {
	part = *f
	part.DeadTo = startOfDay(days.from)
	return part, !f.DeadFrom.IsZero() && f.DeadFrom.Before(part.DeadTo)
}

// partAfter returns the filter for the part of a day after the whole days, if there is one.
func (f *Filter) partAfter(days dayRange) (part Filter, ok bool) {
	part = *f
	part.DeadFrom = startOfDay(days.to)
	return part, part.DeadFrom.Before(f.DeadTo)
}

// countableDays returns the whole days of the selection. It reports false if there is none, or if
// letters of one day and facet group may differ in whether they are selected.
func (sel *selection) countableDays() (dayRange, bool) {
	days := sel.filter.wholeDays()
	for _, column := range sel.filter.rangedColumns() {
		if column != ByDeath {
			return days, false
		}
	}
	return days, days.from < days.to && !sel.filter.hasKey() && !sel.filter.filtersReplays() && !sel.checksText() && !sel.hasDeathBounds()
}

// Rows of recourse.facet_group_days that are read rather than to ask how many letters are in the range, and
// the days that a range without a bound is taken for: dead letters are kept for about as long.
const (
	cheapDays     = 20_000
	unboundedDays = 180
)

// cheapByDay reports whether the letters of the selection are counted by few rows of days.
func (sel *selection) cheapByDay() bool {
	days, ok := sel.countableDays()
	span := days.to - days.from
	if sel.filter.DeadFrom.IsZero() || sel.filter.DeadTo.IsZero() {
		span = unboundedDays
	}
	return ok && span*int64(len(sel.groups)) <= cheapDays
}

// daysOfGroupsSQL reads the days of groups, the first and those after it before the last.
const daysOfGroupsSQL = ` FROM unnest($1::bigint[]) AS s(id) JOIN recourse.facet_group_days d ON d.facet_group = s.id AND d.day >= $2 AND d.day < $3`

// countByDay counts and adds up the selected letters by group: those of the whole days from their
// counts.
func (p *AccessPlan) countByDay(ctx context.Context, tx *sql.Tx, days dayRange, into map[int64]letterSums) error {
	sums := `sum(d.letters), sum(d.at_risk), sum(d.attempts)`
	if p.lettersOnly {
		sums = `sum(d.letters), 0, 0`
	}
	rows, err := tx.QueryContext(ctx, `SELECT d.facet_group, `+sums+daysOfGroupsSQL+` GROUP BY d.facet_group`, pq.Array(p.groupIDs()), days.from, days.to)
	if err != nil {
		return err
	}
	if err := addSums(rows, into); err != nil {
		return err
	}
	for _, partOf := range []func(dayRange) (Filter, bool){p.filter.partBefore, p.filter.partAfter} {
		if part, ok := partOf(days); ok {
			if err := countPart(ctx, tx, *p, part, into); err != nil {
				return err
			}
		}
	}
	return nil
}

// countPart counts and adds up the letters of a part of a day that a plan selects, by group.
func countPart(ctx context.Context, tx *sql.Tx, p AccessPlan, part Filter, into map[int64]letterSums) error {
	p.filter, p.path, p.column = part, byRange, ByDeath
	if !p.selectsMost() {
		sizes, err := p.probeRanges(ctx, tx)
		if err != nil {
			return err
		}
		p.chooseSmallest(sizes)
	}
	return p.countByPath(ctx, tx, into)
}

// minDaySkip is the least offset of which whole days are left out by their counts.
const minDaySkip = 1000

// skipDays returns a filter for what follows the days that an offset leaves out as a whole, in an
// order by death, and the rest of the offset.
func skipDays(ctx context.Context, tx *sql.Tx, tenant string, f Filter, o Order, skip int) (rest Filter, left int, err error) {
	p, err := planFullRead(ctx, tx, tenant, f)
	if err != nil || p.Empty() {
		return f, skip, err
	}
	days, ok := p.countableDays()
	if !ok {
		return f, skip, nil
	}
	p.order, p.lettersOnly = o, true
	next, skipped, err := p.endOfSkipped(ctx, tx, days, int64(skip))
	if err != nil || next.IsZero() {
		return f, skip, err
	}
	if o.Descending {
		f.DeadTo = next
	} else {
		f.DeadFrom = next
	}
	return f, skip - int(skipped), nil
}

// endOfSkipped returns where the days end, in the order, whose letters an offset leaves out, and the
// number of these letters. The time is zero if the offset ends in the first day.
func (p *AccessPlan) endOfSkipped(ctx context.Context, tx *sql.Tx, days dayRange, skip int64) (end time.Time, skipped int64, err error) {
	partOf, first := p.filter.partBefore, days.from
	if p.order.Descending {
		partOf, first = p.filter.partAfter, days.to
	}
	if part, ok := partOf(days); ok {
		counted := map[int64]letterSums{}
		if err := countPart(ctx, tx, *p, part, counted); err != nil {
			return end, 0, err
		}
		for _, sums := range counted {
			skipped += sums.letters
		}
		if skipped > skip {
			return end, 0, nil
		}
		end = startOfDay(first)
	}
	groups := pq.Array(p.groupIDs())
	if days, err = daysOfDeaths(ctx, tx, groups, days); err != nil {
		return end, 0, err
	}
	// Most likely the first stretch has the days that the offset leaves out.
	length := 2 + (days.to-days.from)*skip/max(1, p.letterCount())*5/4
	for ; days.from < days.to; length *= 4 {
		stretch := days
		if p.order.Descending {
			stretch.from = max(days.from, days.to-length)
			days.to = stretch.from
		} else {
			stretch.to = min(days.to, days.from+length)
			days.from = stretch.to
		}
		counted, err := countDays(ctx, tx, groups, stretch, p.order)
		if err != nil {
			return end, 0, err
		}
		for _, d := range counted {
			if skipped+d.letters > skip {
				return end, skipped, nil
			}
			if skipped += d.letters; p.order.Descending {
				end = startOfDay(d.day)
			} else {
				end = startOfDay(d.day + 1)
			}
		}
	}
	return end, skipped, nil
}

// daysOfDeathsSQL reads the first and the last of the days of groups.
const daysOfDeathsSQL = `SELECT coalesce(min(m.first), 0), coalesce(max(m.last) + 1, 0) FROM unnest($1::bigint[]) AS s(id) CROSS JOIN LATERAL (SELECT
  (SELECT d.day FROM recourse.facet_group_days d WHERE d.facet_group = s.id AND d.day >= $2 AND d.day < $3 ORDER BY d.day LIMIT 1) AS first,
  (SELECT d.day FROM recourse.facet_group_days d WHERE d.facet_group = s.id AND d.day >= $2 AND d.day < $3 ORDER BY d.day DESC LIMIT 1) AS last) m`

// daysOfDeaths returns the range within days that has the letters of groups, an array of their ids. It is empty if there are none.
func daysOfDeaths(ctx context.Context, tx *sql.Tx, groups any, days dayRange) (found dayRange, err error) {
	err = tx.QueryRowContext(ctx, daysOfDeathsSQL, groups, days.from, days.to).Scan(&found.from, &found.to)
	return found, err
}

// dayCount is how many letters died on a day.
type dayCount struct{ day, letters int64 }

// countDays counts the letters of groups, an array of their ids, on each of days that has any, in an order by death.
func countDays(ctx context.Context, tx *sql.Tx, groups any, days dayRange, o Order) (counted []dayCount, err error) {
	direction := ""
	if o.Descending {
		direction = " DESC"
	}
	rows, err := tx.QueryContext(ctx, `SELECT d.day, sum(d.letters)`+daysOfGroupsSQL+` GROUP BY d.day ORDER BY d.day`+direction, groups, days.from, days.to)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var d dayCount
		if err := rows.Scan(&d.day, &d.letters); err != nil {
			return nil, err
		}
		counted = append(counted, d)
	}
	return counted, rows.Err()
}
