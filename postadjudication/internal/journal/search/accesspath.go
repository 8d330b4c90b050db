package search

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// searchSettings force the server to use the access path chosen here. Its planner does not
// know how filters correlate with orders, and where it guesses wrong it reads everything.
var searchSettings = map[string]string{
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_sort": "off",
	"enable_incremental_sort": "off", "max_parallel_workers_per_gather": "0", "jit": "off", "plan_cache_mode": "force_custom_plan",
}

// accessPath is how letters are searched. All paths find the same letters.
type accessPath int

const (
	byKey       accessPath = iota // by a selective key, then sorted
	byFacet                       // all letters of the groups, then sorted
	byRange                       // all letters in the range of a column, then sorted
	kWayMerge                     // in order within each group, k-way merged
	orderedScan                   // all letters of the tenant in order, each checked
)

// selection is the letters that a filter selects, as far as the counts of facet groups tell.
type selection struct {
	tenant        string
	filter        Filter
	groups        []facetGroup
	allGroups     bool  // all groups of the tenant match; without facet conditions they are not read
	tenantLetters int64 // letters of the tenant; 0 if the groups were not read
}

// AccessPlan is a selection in an order, with the access path by which it is read.
type AccessPlan struct {
	selection
	order  Order
	path   accessPath
	column Column // for byRange

	valueRange valueRange       // of the order's column: bounds of all matches
	rangeKnown bool             // valueRange is set
	rangeSizes map[Column]int64 // letters in the filter's ranges, counted up to probeLimit
	scanLimit  int              // index entries after which an ordered scan gives up; 0 for none
	textLimit  int              // most messages to check after trigrams

	lettersOnly bool // sums are not needed: letters are counted, in any of the indexes of their group
}

// Empty reports whether no letter can match.
func (sel *selection) Empty() bool { return len(sel.groups) == 0 && !sel.allGroups }

// The cost of a search is the number of index entries it may read. A range with fewer
// letters than probeLimit is worth starting from.
const (
	probeLimit       = 10_000
	certainCostLimit = 8_000 // a path with a bounded cost is preferred up to this
	cheapScan        = 1_000
	groupSeekCost    = 20 // index entries that one more group costs
	scanSafetyFactor = 4  // safety factor: an ordered scan assumes that matches are spread evenly

	maxScan         = 100_000 // most entries lost if they are not,
	maxScanUnread   = 15_000  // if groups were not read, which may show a better path,
	maxScanMessages = 1_000   // and most messages checked in a scan

	// Matches of a range filter on another column may all be at the end of a group's order,
	// so a merge could read the whole group first. So all letters are read instead, up to
	// fullReadLimit, unless the estimate for a merge is far lower.
	fullReadLimit   = 200_000
	mergeGainFactor = 10
)

// PlanSearch reads the groups that a filter may match after a position, and chooses the access
// path, in the transaction or pool of q.
func PlanSearch(ctx context.Context, q pg.RowQuerier, tenant string, f Filter, o Order, after Position, limit int) (p AccessPlan, err error) {
	p = AccessPlan{selection: selection{tenant: tenant, filter: f, allGroups: f.withoutFacets()}, order: o, textLimit: maxTextCandidates}
	if p.allGroups {
		return p, p.planUnfaceted(ctx, q)
	}
	if err := p.readGroups(ctx, q, after); err != nil || p.Empty() {
		return p, err
	}
	if f.hasKey() {
		p.path = byKey
		return p, nil
	}
	if o.Column != ByDeath || !p.selectsMost() || !slices.Equal(f.rangedColumns(), []Column{ByDeath}) {
		if p.rangeSizes, err = p.probeRanges(ctx, q); err != nil {
			return p, err
		}
	}
	p.choosePath(int64(limit))
	p.considerOrderedScan(int64(limit))
	return p, nil
}

// readGroups sets the groups that have letters after a position.
func (p *AccessPlan) readGroups(ctx context.Context, q pg.RowQuerier, after Position) (err error) {
	if p.groups, p.tenantLetters, err = readFacetGroups(ctx, q, p.tenant, p.filter, p.order); err != nil {
		return err
	}
	p.allGroups = p.letterCount() == p.tenantLetters
	p.foldDeathBounds()
	p.clip(after)
	return nil
}

// planUnfaceted chooses the access path of a filter without facet conditions.
func (p *AccessPlan) planUnfaceted(ctx context.Context, q pg.RowQuerier) (err error) {
	if p.path = byKey; p.filter.hasKey() {
		return nil
	}
	if p.rangeSizes, err = p.probeRanges(ctx, q); err != nil {
		return err
	}
	p.path = orderedScan
	least := int64(probeLimit)
	for column, n := range p.rangeSizes {
		if n < least && column != p.order.Column {
			p.path, p.column, least = byRange, column, n
		}
	}
	if len(p.rangeSizes) > 0 {
		p.scanLimit = maxScanUnread
	}
	if p.order.Column != BySeen || p.filter.DeadTo.IsZero() {
		return nil
	}
	var lag int64
	err = q.QueryRowContext(ctx, `SELECT coalesce(max(coalesce(most_lag, $2)), $2) FROM recourse.facet_groups WHERE tenant = $1 AND letters > 0`, p.tenant, int64(math.MaxInt64)).Scan(&lag)
	p.rangeKnown, p.valueRange = true, valueRange{math.MinInt64, p.maxSeenAt(&facetGroup{maxLag: lag})}
	return err
}

// withoutFacets reports whether the filter has no condition that facet groups decide.
func (f *Filter) withoutFacets() bool {
	return f.Facets == (FacetFilter{}) && !f.expires() && f.MinAmount == nil && f.MaxAmount == nil && f.MinReplays == nil && f.MaxReplays == nil
}

// foldDeathBounds moves the bound of the time of death into the filter if all groups have
// the same.
func (sel *selection) foldDeathBounds() {
	if len(sel.groups) == 0 {
		return
	}
	until := sel.groups[0].diedBy
	for _, s := range sel.groups {
		if !s.diedBy.Equal(until) {
			return
		}
	}
	if end := until.Add(time.Microsecond); !until.IsZero() && (sel.filter.DeadTo.IsZero() || end.Before(sel.filter.DeadTo)) {
		sel.filter.DeadTo = end
	}
	for i := range sel.groups {
		sel.groups[i].diedBy = time.Time{}
	}
}

func (sel *selection) groupIDs() []int64 {
	ids := make([]int64, len(sel.groups))
	for i, s := range sel.groups {
		ids[i] = s.id
	}
	return ids
}

func (sel *selection) letterCount() (n int64) {
	for _, s := range sel.groups {
		n += s.letters
	}
	return n
}

// estimate estimates the number of letters to check.
func (sel *selection) estimate() (n int64) {
	for i := range sel.groups {
		n += sel.groups[i].estimate()
	}
	return n
}

// hasDeathBounds reports whether groups have bounds of the time of death of their own.
func (sel *selection) hasDeathBounds() bool {
	for _, s := range sel.groups {
		if !s.diedBy.IsZero() {
			return true
		}
	}
	return false
}

func (sel *selection) checksText() bool {
	for _, s := range sel.groups {
		if s.checkText {
			return true
		}
	}
	return false
}

func (f *Filter) hasKey() bool {
	return f.Transaction != "" || f.Submission != "" || f.Escrow != "" || !f.Run.IsZero()
}

// rangedColumns returns the ordered columns that the filter bounds.
func (f *Filter) rangedColumns() (columns []Column) {
	if !f.DeadFrom.IsZero() || !f.DeadTo.IsZero() {
		columns = append(columns, ByDeath)
	}
	if f.MinAmount != nil || f.MaxAmount != nil {
		columns = append(columns, ByAmount)
	}
	if f.MinAttempts != nil || f.MaxAttempts != nil {
		columns = append(columns, ByAttempts)
	}
	return columns
}

func (f *Filter) filtersReplays() bool {
	return f.MinReplays != nil && *f.MinReplays > 1 || f.MaxReplays != nil && *f.MaxReplays > 0
}

// selectsMost reports whether the selected groups have most letters of the tenant. A range of the time of
// death has then hardly more letters than are selected in it, and is read without being counted before.
func (sel *selection) selectsMost() bool { return 2*sel.letterCount() >= sel.tenantLetters }

// probeRanges counts the letters within each range, up to probeLimit.
func (sel *selection) probeRanges(ctx context.Context, q pg.RowQuerier) (map[Column]int64, error) {
	sizes := map[Column]int64{}
	for _, column := range sel.filter.rangedColumns() {
		var c conditions
		c.add("l.tenant = ?", sel.tenant)
		sel.filter.addRange(&c, column)
		var n int64
		query := `SELECT count(*) FROM (SELECT FROM recourse.letters l WHERE ` + c.String() + ` ORDER BY l.` + string(column) + ` LIMIT ` + c.arg(probeLimit) + `) x`
		if err := q.QueryRowContext(ctx, query, c.args...).Scan(&n); err != nil {
			return nil, err
		}
		sizes[column] = n
	}
	return sizes, nil
}

// choosePath chooses the path with the lowest bounded cost, leaving out the ordered scan.
func (p *AccessPlan) choosePath(limit int64) {
	selectivity := p.otherSelectivity()
	p.path = byFacet
	certain, merge, within := int64(0), limit, int64(0)
	for i := range p.groups {
		s := &p.groups[i]
		letters := s.estimate()
		within += letters
		n := int64(2 / selectivity)
		if s.checkText {
			n *= 20
		}
		certain += groupSeekCost + letters
		merge += groupSeekCost + min(letters, n)
	}
	if !p.hasDeathBounds() {
		for column, n := range p.rangeSizes {
			if n < probeLimit && n < certain {
				p.path, p.column, certain = byRange, column, n
			}
		}
		if _, ranged := p.rangeSizes[ByDeath]; ranged && p.allGroups && within < certain { // facet groups give an upper bound of the deaths in the range
			p.path, p.column, certain = byRange, ByDeath, within
		}
	}
	if merge < certain && certain > cheapScan && (selectivity == 1 || certain > fullReadLimit || mergeGainFactor*merge < certain) {
		p.path = kWayMerge
	}
}

// considerOrderedScan chooses an ordered scan instead where matches are likely to be dense.
func (p *AccessPlan) considerOrderedScan(limit int64) {
	certain := int64(0)
	for i := range p.groups {
		certain += p.groups[i].estimate()
	}
	if p.path == byRange {
		certain = min(certain, p.rangeSizes[p.column])
	}
	scan := int64(scanSafetyFactor * float64(limit) * float64(p.tenantLetters) / (float64(p.letterCount()) * p.otherSelectivity()))
	if p.hasDeathBounds() || scan >= certain || certain <= certainCostLimit && scan > cheapScan {
		return
	}
	all := certain + groupSeekCost*int64(len(p.groups))
	p.path, p.scanLimit = orderedScan, int(min(maxScan, max(cheapScan, all/2)))
}

// otherSelectivity estimates the fraction of letters that the ranges on columns other than
// the order's select.
func (p *AccessPlan) otherSelectivity() float64 {
	selectivity := 1.0
	for column, n := range p.rangeSizes {
		switch {
		case column == p.order.Column:
		case n < probeLimit:
			selectivity *= float64(n+1) / float64(p.tenantLetters+1)
		default:
			selectivity *= max(0.1, min(1, float64(n)/float64(p.tenantLetters)))
		}
	}
	if p.filter.filtersReplays() {
		selectivity *= 0.3
	}
	return selectivity
}
