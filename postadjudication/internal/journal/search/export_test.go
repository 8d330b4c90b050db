package search

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Pools returns all connection pools by purpose.
func (i *Index) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{"projection": i.projectionDB, "search": i.searchDB}
}

// All access paths: those of plans, then an ordered scan with a low limit, and a heap scan.
const (
	AccessPaths = int(orderedScan) + 3
	ShortScan   = AccessPaths - 2
	HeapScan    = AccessPaths - 1
)

// The access paths of plans by name, and statements that are on none of them.
const (
	KeyPath       = int(byKey)
	FacetPath     = int(byFacet)
	RangePath     = int(byRange)
	MergePath     = int(kWayMerge)
	OrderedPath   = int(orderedScan)
	TrigramSearch = AccessPaths + 1
	FacetCount    = AccessPaths + 2
	DayCount      = AccessPaths + 3
)

// ChosenPath selects the path that the plan chooses.
const ChosenPath = -1

// PositionsByPath finds positions by a given access path. It reports false if the filter
// can't use that path.
func (i *Index) PositionsByPath(ctx context.Context, w int, tenant string, f Filter, o Order, after Position, limit int) (found []Position, can bool, err error) {
	err = inSnapshotOf(ctx, i.searchDB, func(ctx context.Context, tx *sql.Tx) error {
		found, can, err = positionsByPath(ctx, tx, w, tenant, f, o, after, limit)
		return err
	})
	return found, can, err
}

func positionsByPath(ctx context.Context, tx *sql.Tx, w int, tenant string, f Filter, o Order, after Position, limit int) ([]Position, bool, error) {
	p, err := PlanSearch(ctx, tx, tenant, f, o, after, limit)
	if err != nil || p.Empty() {
		return nil, true, err
	}
	if w == ChosenPath {
		positions, err := findPositions(ctx, tx, p, after, limit)
		return positions, true, err
	}
	ranged := p.filter.rangedColumns()
	if p.allGroups && len(p.groups) == 0 { // no facet conditions, so they were not read
		if err = p.readGroups(ctx, tx, after); err != nil || p.Empty() {
			return nil, true, err
		}
	}
	if w == HeapScan {
		if f.hasKey() || !p.checksText() {
			return nil, false, nil
		}
		positions, err := findByHeapScan(ctx, tx, p, after, limit)
		return positions, true, err
	}
	if p.path = accessPath(w); w == ShortScan {
		p.path, p.scanLimit, p.textLimit = orderedScan, 1+limit, 3
	}
	switch {
	case p.path == byKey && !f.hasKey(), p.path != byKey && f.hasKey(), p.path == byRange && len(ranged) == 0, p.hasDeathBounds() && (p.path == byRange || p.path == orderedScan):
		return nil, false, nil
	case p.path == byRange:
		p.column = ranged[len(ranged)-1]
	case w == ShortScan:
		positions, err := findPositions(ctx, tx, p, after, limit)
		return positions, true, err
	}
	positions, err := findByPath(ctx, tx, p, after, limit)
	return positions, true, err
}

// PositionsBehind finds positions after one, without the first skip of them. Not zero, scanLimit replaces
// the limit of an ordered scan.
func (i *Index) PositionsBehind(ctx context.Context, tenant string, f Filter, o Order, after Position, skip, limit, scanLimit int) (found []Position, err error) {
	err = inSnapshotOf(ctx, i.searchDB, func(ctx context.Context, tx *sql.Tx) error {
		p, err := PlanSearch(ctx, tx, tenant, f, o, after, skip+limit)
		if err != nil || p.Empty() {
			return err
		}
		if scanLimit > 0 && !f.hasKey() && !p.hasDeathBounds() {
			p.path, p.scanLimit = orderedScan, scanLimit
		}
		found, err = findBehind(ctx, tx, p, after, skip, limit)
		return err
	})
	return found, err
}

// PositionsBehindDays finds the first positions without the first skip of them: days that these contain
// are left out by their counts. It returns how many are left out otherwise.
func (i *Index) PositionsBehindDays(ctx context.Context, tenant string, f Filter, o Order, skip, limit int) (positions []Position, left int, err error) {
	err = inSnapshotOf(ctx, i.searchDB, func(ctx context.Context, tx *sql.Tx) error {
		f, left, err = skipDays(ctx, tx, tenant, f, o, skip)
		return err
	})
	if err != nil {
		return nil, left, err
	}
	positions, err = i.PositionsBehind(ctx, tenant, f, o, Position{}, left, limit, 0)
	return positions, left, err
}

// CountByDay counts letters, and adds up what they have at risk and their attempts, by days. It reports
// false if the filter selects none, or no day as a whole.
func (i *Index) CountByDay(ctx context.Context, tenant string, f Filter) (sums [3]int64, ok bool, err error) {
	err = i.inReadSnapshot(ctx, tenant, func(ctx context.Context, tx *sql.Tx) error {
		p, err := planFullRead(ctx, tx, tenant, f)
		if err != nil || p.Empty() {
			return err
		}
		var days dayRange
		if days, ok = p.countableDays(); !ok {
			return nil
		}
		counted := map[int64]letterSums{}
		err = p.countByDay(ctx, tx, days, counted)
		for _, n := range counted {
			risk, _ := n.atRisk.Minor()
			sums[0], sums[1], sums[2] = sums[0]+n.letters, sums[1]+risk, sums[2]+n.attempts
		}
		return err
	})
	return sums, ok, err
}

// StoredTrigrams returns the trigrams stored for a message.
func StoredTrigrams(tenant, message, constant string) string {
	return arrayLiteral(storedTrigrams(tenant, message, constant))
}

// CountFacetGroups returns the number of facet groups that a filter may match.
func (i *Index) CountFacetGroups(ctx context.Context, tenant string, f Filter) (int, error) {
	groups, _, err := readFacetGroups(ctx, i.searchDB, tenant, f, Order{})
	return len(groups), err
}

// TallyReads returns the tallies of a filter, with the number of letters that the server read for
// them.
func (i *Index) TallyReads(ctx context.Context, tenant string, f Filter) (tallies []Tally, read int64, err error) {
	err = i.inReadSnapshot(ctx, tenant, func(ctx context.Context, tx *sql.Tx) error {
		// The counters are of the connection, not of the transaction alone.
		const readSQL = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'recourse.letters'::regclass`
		var before int64
		if err := tx.QueryRowContext(ctx, readSQL).Scan(&before); err != nil {
			return err
		}
		if _, tallies, err = tallyGroups(ctx, tx, tenant, f); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, readSQL).Scan(&read); err != nil {
			return err
		}
		read -= before
		return nil
	})
	return tallies, read, err
}

// Compare compares two positions in the order.
func (o Order) Compare(a, b Position) int { return o.compare(a, b) }

// Explain returns the server's plan for the statement of a search on a given access path.
func (i *Index) Explain(ctx context.Context, w int, tenant string, f Filter, o Order, limit int) (text string, err error) {
	p := AccessPlan{selection: selection{tenant: tenant, filter: f}, order: o, path: accessPath(w), textLimit: maxTextCandidates}
	if err := p.readGroups(ctx, i.searchDB, Position{}); err != nil {
		return "", err
	}
	if p.Empty() {
		return "", errors.New("the filter selects nothing")
	}
	tx, err := i.searchDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	explain := func(query string, args []any) func() error {
		return func() (err error) {
			text, err = explained(ctx, tx, query, args)
			return err
		}
	}
	switch w {
	case TrigramSearch:
		indexed, _, ok := p.splitByTrigrams()
		if !ok {
			return "", errors.New("trigrams can't be used")
		}
		err = explain(indexed.statement(Position{}, limit))()
	case HeapScan:
		p.path = byFacet
		err = p.inHeapOrder(ctx, tx, explain(p.heapScanStatement(Position{}, limit)))
	case FacetCount:
		p.path, p.lettersOnly = byFacet, true
		err = explain(p.countStatement())()
	case DayCount:
		days, _ := p.countableDays()
		err = explain(`SELECT d.facet_group`+daysOfGroupsSQL, []any{pq.Array(p.groupIDs()), days.from, days.to})()
	case ShortScan:
		p.path, p.scanLimit = orderedScan, 1+limit
		err = explain(p.boundedScanStatement(Position{}, limit))()
	default:
		if p.path == byRange {
			p.column = f.rangedColumns()[0]
		}
		err = explain(p.Statement(Position{}, limit))()
	}
	return text, err
}

func explained(ctx context.Context, tx *sql.Tx, query string, args []any) (string, error) {
	rows, err := tx.QueryContext(ctx, "EXPLAIN (COSTS OFF) "+query, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), rows.Err()
}

// ArrayStatements are statements that take arrays, by their declarations.
var ArrayStatements = map[string]string{
	"foundLettersSQL": foundLettersSQL, "groupTalliesSQL": groupTalliesSQL, "daysOfDeathsSQL": daysOfDeathsSQL,
	"daysOfGroupsSQL": `SELECT d.facet_group, sum(d.letters), sum(d.at_risk), sum(d.attempts)` + daysOfGroupsSQL + ` GROUP BY d.facet_group`,
	"replaysSQL":      replaysSQL, "facetGroupIDsSQL": facetGroupIDsSQL, "newFacetGroupsSQL": newFacetGroupsSQL, "upsertLettersSQL": upsertLettersSQL,
	"deadOfCasesSQL": deadOfCasesSQL, "repairGroupsSQL": repairGroupsSQL, "removeExtraRowsSQL": removeExtraRowsSQL, "shortSubstringsSQL": shortSubstringsSQL,
}

// GroupStatements are statements of a plan for facet groups, by the declarations that restrict them to these. Half of
// the groups are checked for a text. With three bounds of the time of death, each group has one of them.
var GroupStatements = map[string]func(tenant string, groups []int64, bounded bool) (query string, args []any){
	"joinGroups, all letters":      onPath(byFacet, (*AccessPlan).firstLetters),
	"joinGroups, merged":           onPath(kWayMerge, (*AccessPlan).firstLetters),
	"joinGroups, death times":      onPath(byFacet, (*AccessPlan).deathTimesStatement),
	"joinGroups, counted":          onPath(byFacet, func(p *AccessPlan) (string, []any) { return p.unchecked().countStatement() }),
	"joinGroups, histogram":        onPath(byFacet, func(p *AccessPlan) (string, []any) { return p.unchecked().histogram() }),
	"heapScanConditions, found":    onPath(byFacet, func(p *AccessPlan) (string, []any) { return p.heapScanStatement(Position{}, 100) }),
	"heapScanConditions, counted":  onPath(byFacet, (*AccessPlan).countStatement),
	"restrictToPlan, ordered scan": onPath(orderedScan, (*AccessPlan).firstLetters),
	"restrictToPlan, bounded scan": onPath(orderedScan, func(p *AccessPlan) (string, []any) {
		p.scanLimit = maxScan
		return p.boundedScanStatement(Position{}, 100)
	}),
	"restrictToPlan, range": onPath(byRange, func(p *AccessPlan) (string, []any) { p.column = ByAmount; return p.firstLetters() }),
	"restrictToPlan, key":   onPath(byKey, func(p *AccessPlan) (string, []any) { p.filter.Escrow = "esc"; return p.countStatement() }),
	"addMatching": onPath(byFacet, func(p *AccessPlan) (string, []any) {
		indexed, _, _ := p.splitByTrigrams()
		return indexed.statement(Position{}, 100)
	}),
}

func onPath(path accessPath, statement func(*AccessPlan) (string, []any)) func(string, []int64, bool) (string, []any) {
	return func(tenant string, groups []int64, bounded bool) (string, []any) {
		amount, until := int64(100), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		p := AccessPlan{selection: selection{tenant: tenant, filter: Filter{Facets: FacetFilter{Text: "account 7"}, MaxAmount: &amount}}, order: Order{Column: ByDeath}, path: path, textLimit: maxTextCandidates}
		for i, id := range groups {
			s := facetGroup{id: id, letters: 3, checkText: i%2 == 0}
			if bounded {
				s.diedBy = until.Add(time.Duration(1+i%3) * 24 * time.Hour)
			}
			p.groups = append(p.groups, s)
		}
		return statement(&p)
	}
}

func (p *AccessPlan) firstLetters() (string, []any) { return p.Statement(Position{}, 100) }

func (p *AccessPlan) histogram() (string, []any) {
	return p.histogramStatement([]time.Time{time.Unix(0, 0), time.Now()})
}

// unchecked is the plan without the text.
func (p *AccessPlan) unchecked() *AccessPlan {
	for i := range p.groups {
		p.groups[i].checkText = false
	}
	return p
}
