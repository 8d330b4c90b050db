package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

const insertGivenItemsSQL = `INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency, gate)
SELECT $1, * FROM unnest($2::bigint[], $3::uuid[], $4::uuid[], $5::bigint[], $6::bytea[], $7::bigint[], $8::text[], $9::text[])`

// CreateBulkPlanOf stores a plan with the items that it is given; these are nothing until the plan
// itself is stored, with its receipt. Their heads are what the caller saw: an item whose case has moved since is not acted on. All of them
// are of settlements.
func (j *Journal) CreateBulkPlanOf(ctx context.Context, b BulkPlan, items []BulkItem, staleBefore time.Time) (BulkPlan, error) {
	if err := j.deleteStalePlan(ctx, b.Tenant, staleBefore, b.PlannedAt); err != nil {
		return b, unavailable(err)
	}
	builder := planBuilder{bulk: b.ID, items: int64(len(items)), hasSettlements: true, counts: map[[2]string]BulkCount{}}
	c := newColumns(8, len(items))
	for i := range items {
		item := &items[i]
		c.int(item.Position)
		c.id(item.Run)
		c.id(item.Case)
		c.int(item.Head.Seq)
		c.bytes(item.Head.Link[:])
		c.int(item.Amount)
		c.str(item.Currency)
		c.str(item.Gate)
		builder.addCount(item.Gate, &PlannedLetter{Amount: item.Amount, Case: Case{Kind: KindSettlement, Currency: item.Currency}})
	}
	b.Items, b.State, b.OutcomesKnown, b.HasSettlements = builder.items, BulkPlanned, true, true
	err := j.inTx(ctx, j.searchDB, failpoint.BulkItems, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertGivenItemsSQL, append([]any{b.ID}, c.args()...)...); err != nil {
			return err
		}
		return builder.insertCounts(ctx, tx, &b)
	})
	if err != nil {
		return b, err
	}
	return b, j.insertBulkPlan(ctx, &b)
}

// matchPage is how many letters are looked at together. They are read whole, so that
// it bounds what a plan keeps in memory.
const matchPage = 2_000

// takeMatching takes in those of the next letters that meet the plan's condition; more tells
// whether others may follow.
func (p *planBuilder) takeMatching(ctx context.Context, tx *sql.Tx, search *searchPlan, scope BulkScope) (more bool, err error) {
	positions, err := search.find(ctx, tx, p.last, int(scope.BatchSize))
	if err != nil || len(positions) == 0 {
		return false, err
	}
	letters, err := readLetters(ctx, tx, positions)
	if err != nil {
		return false, err
	}
	selected := newColumns(2, 0)
	for _, l := range letters {
		if scope.Limit > 0 && p.items+int64(selected.rows) == scope.Limit {
			break
		}
		matches, err := scope.Matches(ctx, l)
		if err != nil {
			return false, err
		}
		if matches {
			selected.id(l.Run.ID)
			selected.time(time.UnixMicro(l.Position.Value).UTC())
		}
	}
	if selected.rows > 0 {
		if _, err := p.insertLetters(ctx, tx, `SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS u(run_id, value)`, selected.args()); err != nil {
			return false, err
		}
	}
	p.last = positions[len(positions)-1]
	return int64(len(positions)) == scope.BatchSize, nil
}

// unprojectedCasesSQL gives the cases of a tenant's dead runs of which something is told that
// the projection of letters has not taken in.
const unprojectedCasesSQL = `
WITH told AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log l, unnest(l.case_ids) AS u(id) WHERE l.last > (SELECT last FROM recourse.projected WHERE name = 'letters')
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id)
)
SELECT DISTINCT r.case_id FROM told t JOIN recourse.runs r ON r.case_id = t.id WHERE r.tenant = $1 AND r.dead_at IS NOT NULL`

// unprojectedCases gives the cases whose letters may be other than they are listed, in a
// transaction that sees all at one moment: of the letters of all other cases, the list
// tells what they are at it. Among them are a few that were projected before they got
// their place in the order of events.
func unprojectedCases(ctx context.Context, tx *sql.Tx, tenant string) (cases pq.StringArray, err error) {
	rows, err := tx.QueryContext(ctx, unprojectedCasesSQL, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cases = pq.StringArray{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		cases = append(cases, id)
	}
	return cases, rows.Err()
}

// CatchUpForPlan is CatchUpLetters, but that what was committed before the call has its
// place in the order of events as well: else a plan would take it for something newer.
func (j *Journal) CatchUpForPlan(ctx context.Context) error {
	if err := j.DrainOutbox(ctx); err != nil {
		return err
	}
	return j.CatchUpLetters(ctx)
}

// planTimeout bounds the making of a plan, and the reading of one as a whole.
const planTimeout = 10 * time.Minute

// PlannedLetter is a letter that a plan takes in, with what decides whether the action
// would be refused now. Of run and case it holds no more than that.
type PlannedLetter struct {
	Run    background.Run
	Case   Case
	Amount int64 // that stays reserved for it
	Held   bool
}

// BulkScope is what a plan takes in.
type BulkScope struct {
	Filter    LetterFilter
	Limit     int64 // the oldest of them; all when 0
	BatchSize int64 // how many a statement takes: what a plan costs who makes it, however large it is
	// Matches tells whether a letter that the filter selects is meant; nil: all are. It is
	// given them in order, as they are at the moment that the plan is of. Its error ends
	// the planning.
	Matches func(context.Context, FoundLetter) (bool, error)
	// ExtraCounts gives counts to keep with those of the plan, when all were judged; may be nil.
	ExtraCounts func() []BulkCount
	// GateOf is given each letter in order, and tells the gate that refuses it, or nothing.
	GateOf func(*PlannedLetter) string
	// Hash gives the hash when all were judged.
	Hash func() [32]byte
	// StaleBefore: a plan of the tenant that was made before, and that nobody has started,
	// is forgotten; one with each that is made.
	StaleBefore time.Time
}

// ErrNothingPlanned means that no letter is of the scope of a plan. Nothing is stored.
var ErrNothingPlanned = errors.New("postgres: a plan of nothing")

// CreateBulkPlan stores a plan with the letters of a scope, oldest first, or not at all: first
// what it takes in, then the plan itself with its receipt. Until then nobody can see it, and
// what is left of one that never came is forgotten with the others. The filter selects letters as they were projected: see CatchUpForPlan. All
// is of one moment; what has been told of a letter by then that is not projected has
// moved it, and it is stored without a head, so that nothing is done with it.
func (j *Journal) CreateBulkPlan(ctx context.Context, b BulkPlan, scope BulkScope) (_ BulkPlan, err error) {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	if scope.Matches != nil {
		scope.BatchSize = min(scope.BatchSize, matchPage)
	}
	if err := j.deleteStalePlan(ctx, b.Tenant, scope.StaleBefore, b.PlannedAt); err != nil {
		return b, err
	}
	tx, err := j.searchDB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return b, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	unprojected, err := unprojectedCases(ctx, tx, b.Tenant)
	if err != nil {
		return b, unavailable(err)
	}
	search, err := planSearch(ctx, tx, b.Tenant, scope.Filter, LetterOrder{Column: ByDeath}, LetterPosition{}, int(scope.BatchSize))
	if err != nil {
		return b, unavailable(err)
	}
	builder := planBuilder{bulk: b.ID, gateOf: scope.GateOf, unprojected: unprojected, counts: map[[2]string]BulkCount{}}
	for more := !search.empty(); more; {
		size := scope.BatchSize
		if scope.Limit > 0 {
			size = min(size, scope.Limit-builder.items)
		}
		if scope.Matches != nil {
			more, err = builder.takeMatching(ctx, tx, &search, scope)
		} else {
			more, err = builder.addBatch(ctx, tx, &search, size)
		}
		if err != nil {
			return b, unavailable(err)
		}
		more = more && (scope.Limit == 0 || builder.items < scope.Limit)
	}
	if builder.items == 0 {
		return b, ErrNothingPlanned
	}
	b.Items, b.Hash, b.State, b.OutcomesKnown, b.HasSettlements = builder.items, scope.Hash(), BulkPlanned, true, builder.hasSettlements
	if scope.ExtraCounts != nil {
		for _, c := range scope.ExtraCounts() {
			builder.counts[[2]string{c.Label, c.Currency}] = c
		}
	}
	if err := builder.insertCounts(ctx, tx, &b); err != nil {
		return b, unavailable(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.BulkItems)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.BulkItems)
	if err != nil {
		return b, unavailable(err)
	}
	return b, j.insertBulkPlan(ctx, &b)
}

// planBuilder is a plan that is being made.
type planBuilder struct {
	bulk           uuid.UUID
	gateOf         func(*PlannedLetter) string
	unprojected    pq.StringArray // cases, see unprojectedCases
	items          int64
	last           LetterPosition
	hasSettlements bool // one of the letters is of a settlement
	counts         map[[2]string]BulkCount
}

// insertBatchSQL stores the letters that a search finds, and gives them back to be judged.
// Their amount is what is reserved for them. No case has the head 0.
func insertBatchSQL(search string, n int) string {
	bulk, before, unprojected := "$"+strconv.Itoa(n+1), "$"+strconv.Itoa(n+2), "c.id = ANY($"+strconv.Itoa(n+3)+"::uuid[])"
	return `WITH f AS MATERIALIZED (` + search + `), s AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY f.value, f.run_id) + ` + before + `::bigint AS position, f.value, r.id, c.id AS case_id,
    CASE WHEN ` + unprojected + ` THEN 0 ELSE c.last_seq END AS last_seq, CASE WHEN ` + unprojected + ` THEN decode(repeat('00', 32), 'hex') ELSE c.last_link END AS last_link,
    c.reserved AS amount, coalesce(e.currency, '') AS currency, c.kind, r.family, r.state, r.letter, r.class, c.progression, c.asked, c.moved, c.reserved, c.unknown_open, c.first_sent_at, coalesce(k.held, false) AS held
  FROM f JOIN recourse.runs r ON r.id = f.run_id JOIN recourse.cases c ON c.id = r.case_id
    LEFT JOIN recourse.escrows e ON e.id = c.escrow_id LEFT JOIN recourse.desk k ON k.run_id = r.id
), i AS (
  INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency)
  SELECT ` + bulk + `::uuid, position, id, case_id, last_seq, last_link, amount, currency FROM s
) SELECT * FROM s ORDER BY position`
}

// addBatch takes in the next letters; more tells whether others may follow.
func (p *planBuilder) addBatch(ctx context.Context, tx *sql.Tx, search *searchPlan, size int64) (more bool, err error) {
	query, args := search.statement(p.last, int(size))
	inserted, err := p.insertLetters(ctx, tx, query, args)
	return inserted == size, err
}

// insertLetters writes down the letters that a search gives.
func (p *planBuilder) insertLetters(ctx context.Context, tx *sql.Tx, query string, args []any) (inserted int64, err error) {
	rows, err := tx.QueryContext(ctx, insertBatchSQL(query, len(args)), append(args, p.bulk, p.items, p.unprojected)...)
	if err != nil {
		return inserted, err
	}
	defer rows.Close()
	gates := newColumns(2, 0)
	for ; rows.Next(); inserted++ {
		l, died, err := scanPlannedLetter(rows)
		if err != nil {
			return inserted, err
		}
		p.items++
		p.last = LetterPosition{died.UnixMicro(), l.Run.ID}
		gate := p.gateOf(&l)
		if gate != "" {
			gates.int(p.items)
			gates.str(gate)
		}
		p.addCount(gate, &l)
	}
	if err := rows.Err(); err != nil || gates.rows == 0 {
		return inserted, err
	}
	args = append([]any{p.bulk}, gates.args()...)
	_, err = tx.ExecContext(ctx, `UPDATE recourse.bulk_items i SET gate = g.gate FROM unnest($2::bigint[], $3::text[]) AS g(position, gate)
		WHERE i.bulk_id = $1 AND i.position = g.position`, args...)
	return inserted, err
}

func scanPlannedLetter(rows *sql.Rows) (l PlannedLetter, died time.Time, err error) {
	var position int64
	var run, caseID uuid.UUID
	var link []byte
	var sent sql.NullTime
	r, c := &l.Run, &l.Case
	err = rows.Scan(&position, &died, &run, &caseID, &c.Head.Seq, &link, &l.Amount, &c.Currency, &c.Kind, &r.Family, &r.State, &r.Letter, &r.Class,
		&c.State.Progression, &c.State.Asked, &c.State.Moved, &c.State.Reserved, &r.UnresolvedUnknowns, &sent, &l.Held)
	r.ID, r.Case, c.ID, r.FirstSentAt = background.RunID(run), background.CaseID(caseID), receipts.CaseID(caseID), utcOrZero(sent)
	copy(c.Head.Link[:], link)
	return l, died, err
}

func (p *planBuilder) addCount(gate string, l *PlannedLetter) {
	k := [2]string{gate, l.Case.Currency}
	c := p.counts[k]
	c.Label, c.Currency, c.Items, c.Amount = gate, l.Case.Currency, c.Items+1, c.Amount+l.Amount
	p.counts[k] = c
	p.hasSettlements = p.hasSettlements || l.Case.Kind == KindSettlement
}

// insertCounts stores the counts of the plan.
func (p *planBuilder) insertCounts(ctx context.Context, tx *sql.Tx, b *BulkPlan) error {
	for _, c := range p.counts {
		if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.bulk_counts (bulk_id, ran, word, currency, items, amount) VALUES ($1, false, $2, $3, $4, $5)`,
			b.ID, c.Label, c.Currency, c.Items, c.Amount); err != nil {
			return err
		}
	}
	return nil
}
