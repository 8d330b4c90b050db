package search

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/settlement"
)

// Tally counts the letters of one facet group that a filter selects, and adds up what
// stays reserved for the open ones.
type Tally struct {
	Status, Family, Queue, JobType, Outcome, Reason, Class, ErrorType, Currency, Signature, ReplayedBy string

	Held, Eligible, Review bool

	Letters  int64
	AtRisk   settlement.Sum
	Attempts int64 // of all letters, added up

	group int64
}

// letterSums are what some letters of a facet group add up to.
type letterSums struct {
	letters  int64
	atRisk   settlement.Sum
	attempts int64
}

func (s letterSums) plus(t letterSums) letterSums {
	return letterSums{s.letters + t.letters, s.atRisk.Plus(t.atRisk), s.attempts + t.attempts}
}

// Analysis is the tallies and groups of the letters that a filter selects.
type Analysis struct {
	Tallies        []Tally
	SignatureCount int     // number of distinct signatures
	Largest        []Group // groups of one signature, largest first
}

// Tally counts the letters of a tenant that a filter selects, by facet group, and
// fills the histograms: exactly, and all at one moment.
func (i *Index) Tally(ctx context.Context, tenant string, f Filter, deaths ...*DeathHistogram) ([]Tally, error) {
	out, err := i.Analyze(ctx, tenant, f, 0, deaths...)
	return out.Tallies, err
}

// Analyze tallies letters and returns as many of their largest groups, of the same
// moment.
func (i *Index) Analyze(ctx context.Context, tenant string, f Filter, largest int, deaths ...*DeathHistogram) (out Analysis, err error) {
	err = i.inReadSnapshot(ctx, tenant, func(ctx context.Context, tx *sql.Tx) error {
		p, tallies, err := tallyGroups(ctx, tx, tenant, f)
		if err != nil {
			return err
		}
		out.Tallies = tallies
		for _, d := range deaths {
			if err := d.count(ctx, tx, p); err != nil {
				return err
			}
		}
		if largest == 0 {
			return nil
		}
		groups := groupBySignature(tallies)
		out.SignatureCount = len(groups)
		for n := range groups {
			groups[n].orderValue = groups[n].Letters
		}
		slices.SortFunc(groups, func(a, b Group) int { return a.position().compare(b.position()) })
		out.Largest = groups[:min(largest, len(groups))]
		return p.setDeathTimes(ctx, tx, out.Largest)
	})
	return out, err
}

// inReadSnapshot runs searches of a tenant in one read-only snapshot, within countTimeout.
func (i *Index) inReadSnapshot(ctx context.Context, tenant string, read func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	return i.Do(ctx, tenant, func(db *sql.DB) error { return pg.Wrap(inSnapshotOf(ctx, db, read)) })
}

func inSnapshotOf(ctx context.Context, db *sql.DB, read func(context.Context, *sql.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	return read(ctx, tx)
}

// planFullRead plans to read all letters that a filter selects, by the smallest range or by
// facet group.
func planFullRead(ctx context.Context, tx *sql.Tx, tenant string, f Filter) (p AccessPlan, err error) {
	p = AccessPlan{selection: selection{tenant: tenant, filter: f}, textLimit: maxTextCandidates}
	if p.groups, p.tenantLetters, err = readFacetGroups(ctx, tx, tenant, f, Order{}); err != nil || p.Empty() {
		return p, err
	}
	p.foldDeathBounds()
	p.allGroups = p.letterCount() == p.tenantLetters
	if p.path = byKey; p.filter.hasKey() {
		return p, nil
	}
	if p.path = byFacet; p.cheapByDay() {
		return p, nil
	}
	sizes, err := p.probeRanges(ctx, tx)
	p.chooseSmallest(sizes)
	return p, err
}

// filtersWithinGroups reports whether the filter has conditions, other than the text, that
// facet groups do not decide.
func (sel *selection) filtersWithinGroups() bool {
	return len(sel.filter.rangedColumns()) > 0 || sel.filter.hasKey() || sel.filter.filtersReplays() || sel.hasDeathBounds()
}

func tallyGroups(ctx context.Context, tx *sql.Tx, tenant string, f Filter) (p AccessPlan, out []Tally, err error) {
	if p, err = planFullRead(ctx, tx, tenant, f); err != nil || p.Empty() {
		return p, nil, err
	}
	counted, whole, err := p.countMatches(ctx, tx)
	if err != nil {
		return p, nil, err
	}
	if out, err = p.groupTallies(ctx, tx); err != nil {
		return p, nil, err
	}
	kept := out[:0]
	for _, t := range out {
		n, any := counted[t.group]
		switch {
		case any:
			t.Letters, t.AtRisk, t.Attempts = n.letters, n.atRisk, n.attempts
		case !whole[t.group]:
			continue
		}
		kept = append(kept, t)
	}
	return p, kept, nil
}

const groupTalliesSQL = `SELECT s.id, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, replayed_by, held, eligible, review, letters, at_risk, attempts
FROM unnest($1::bigint[]) AS i(id) JOIN recourse.facet_groups s ON s.id = i.id`

// groupTallies reads the tallies of the plan's groups, with all their letters.
func (sel *selection) groupTallies(ctx context.Context, tx *sql.Tx) (out []Tally, err error) {
	rows, err := tx.QueryContext(ctx, groupTalliesSQL, pq.Array(sel.groupIDs()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out = make([]Tally, 0, len(sel.groups))
	for rows.Next() {
		var t Tally
		if err := rows.Scan(&t.group, &t.Status, &t.Family, &t.Queue, &t.JobType, &t.Outcome, &t.Reason, &t.Class, &t.ErrorType, &t.Currency, &t.Signature, &t.ReplayedBy,
			&t.Held, &t.Eligible, &t.Review, &t.Letters, &t.AtRisk, &t.Attempts); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// countMatches counts and adds up the selected letters by group, for groups that have any. It
// reads no letter of the whole groups, and returns these.
func (p *AccessPlan) countMatches(ctx context.Context, tx *sql.Tx) (counted map[int64]letterSums, whole map[int64]bool, err error) {
	counted, whole = map[int64]letterSums{}, map[int64]bool{}
	rest, err := p.countByTrigrams(ctx, tx, counted)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range rest.takeWholeGroups() {
		whole[s.id] = true
	}
	days, ok := rest.countableDays()
	switch {
	case rest.Empty():
	case ok && rest.path == byFacet: // few letters are read faster
		err = rest.countByDay(ctx, tx, days, counted)
	default:
		err = rest.countByPath(ctx, tx, counted)
	}
	return counted, whole, err
}

func (p *AccessPlan) countByPath(ctx context.Context, tx *sql.Tx, into map[int64]letterSums) error {
	query, args := p.countStatement()
	return p.inHeapOrder(ctx, tx, func() error {
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		return addSums(rows, into)
	})
}

// countStatement returns the SQL that counts and adds up the selected letters by group, for groups
// that have any.
func (p *AccessPlan) countStatement() (string, []any) {
	sums := `count(*), coalesce(sum(l.at_risk), 0), coalesce(sum(l.attempts), 0)`
	if p.lettersOnly {
		sums = `count(*), 0, 0`
	}
	var c conditions
	switch {
	case p.scansMessages():
		p.heapScanConditions(&c)
		return `SELECT l.facet_group, ` + sums + ` FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY l.facet_group`, c.args
	case p.path == byFacet:
		table := p.joinGroups(&c)
		return `SELECT s.id, m.* FROM ` + table + ` CROSS JOIN LATERAL (SELECT ` + sums + ` FROM recourse.letters l WHERE ` + c.String() + `) AS m(n, risk, tries) WHERE m.n > 0`, c.args
	}
	return p.matchesCTE(&c) + ` SELECT l.facet_group, ` + sums + ` FROM g l GROUP BY l.facet_group`, c.args
}

// addSums adds rows of a group, its letters, what they have at risk, and their attempts.
func addSums(rows *sql.Rows, into map[int64]letterSums) error {
	defer rows.Close()
	for rows.Next() {
		var group int64
		var n letterSums
		if err := rows.Scan(&group, &n.letters, &n.atRisk, &n.attempts); err != nil {
			return err
		}
		into[group] = into[group].plus(n)
	}
	return rows.Err()
}

// matchesCTE returns a WITH clause that reads the few letters of a key or a narrow range,
// as g.
func (p *AccessPlan) matchesCTE(c *conditions) string {
	p.restrictToPlan(c)
	ordered := ""
	if p.path == byRange {
		ordered = ` ORDER BY l.` + string(p.column)
	}
	columns := `, l.run_id, l.dead_at, l.at_risk, l.attempts`
	if p.lettersOnly { // the index of the range has the group
		columns = ``
	}
	return `WITH g AS MATERIALIZED (SELECT l.facet_group` + columns + ` FROM recourse.letters l WHERE ` + c.String() + ordered + `)`
}

// countTimeout bounds a count.
const countTimeout = 5 * time.Second

// Count counts the letters of a tenant that a filter selects, by status: all at one
// moment. Groups that are selected as a whole, and days of others, are counted without reading
// their letters; else it reads those of the narrowest part of the filter.
func (i *Index) Count(ctx context.Context, tenant string, f Filter) (map[string]int64, error) {
	out := map[string]int64{}
	err := i.inReadSnapshot(ctx, tenant, func(ctx context.Context, tx *sql.Tx) error {
		p, err := planFullRead(ctx, tx, tenant, f)
		if err != nil || p.Empty() {
			return err
		}
		p.lettersOnly = true
		counted, whole, err := p.countMatches(ctx, tx)
		for _, s := range p.groups {
			n, ok := counted[s.id]
			if !ok && whole[s.id] {
				n.letters = s.letters
			}
			if n.letters > 0 {
				out[s.status] += n.letters
			}
		}
		return err
	})
	return out, err
}

// takeWholeGroups removes the groups from the plan whose letters are all selected, and
// returns them.
func (sel *selection) takeWholeGroups() (whole []facetGroup) {
	if sel.filtersWithinGroups() {
		return nil
	}
	var others []facetGroup
	for _, s := range sel.groups {
		if s.checkText {
			others = append(others, s)
			continue
		}
		whole = append(whole, s)
	}
	sel.groups, sel.allGroups = others, sel.allGroups && len(whole) == 0
	return whole
}

// countByTrigrams counts the letters that trigrams can find, and returns the plan for the
// rest.
func (p *AccessPlan) countByTrigrams(ctx context.Context, q pg.Querier, into map[int64]letterSums) (AccessPlan, error) {
	indexed, others, ok := p.splitByTrigrams()
	if ok {
		var err error
		if ok, err = indexed.countByGroup(ctx, q, into); err != nil {
			return *p, err
		}
	}
	if !ok {
		return *p, nil
	}
	return others, nil
}

// chooseSmallest chooses the smallest path to read in full: a range, or the groups.
func (p *AccessPlan) chooseSmallest(sizes map[Column]int64) {
	p.path = byFacet
	least := p.letterCount()
	for column, n := range sizes {
		if n < probeLimit && n < least && !p.hasDeathBounds() {
			p.path, p.column, least = byRange, column, n
		}
	}
}
