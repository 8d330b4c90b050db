package plans

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
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

const insertGivenItemsSQL = `INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency, gate)
SELECT $1, * FROM unnest($2::bigint[], $3::uuid[], $4::uuid[], $5::bigint[], $6::bytea[], $7::bigint[], $8::text[], $9::text[])`

// CreateOf stores a plan with the given items, which are all of settlements. First
// it stores the items, which have no effect by themselves, then the plan with its receipt.
// Their heads are those that the caller read: an item whose case has changed since is not
// acted on.
func (p *Store) CreateOf(ctx context.Context, b Plan, items []Item, staleBefore time.Time) (Plan, error) {
	if err := p.deleteStalePlan(ctx, &b, staleBefore); err != nil {
		return b, pg.Wrap(err)
	}
	builder := planBuilder{bulk: b.ID, items: int64(len(items)), hasSettlements: true, counts: map[[2]string]Count{}}
	c := pg.NewTextColumns(8, len(items))
	for i := range items {
		item := &items[i]
		c.Int(item.Position)
		c.ID(item.Run)
		c.ID(item.Case)
		c.Int(item.Head.Seq)
		c.Bytes(item.Head.Link[:])
		c.Int(item.Amount)
		c.Str(item.Currency)
		c.Str(item.Gate)
		builder.addCount(item.Gate, &Letter{Amount: item.Amount, Case: journal.Case{Kind: journal.KindSettlement, Currency: item.Currency}})
	}
	b.Items, b.State, b.OutcomesKnown, b.HasSettlements = builder.items, Planned, true, true
	insert := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertGivenItemsSQL, append([]any{b.ID}, c.Args()...)...); err != nil {
			return err
		}
		return builder.insertCounts(ctx, tx, &b)
	}
	if err := p.index.Do(ctx, b.Tenant, func(db *sql.DB) error { return p.journal.InTx(ctx, db, failpoint.BulkItems, insert) }); err != nil {
		return b, err
	}
	return b, p.insertPlan(ctx, &b)
}

// matchPage is the number of dead letters that are matched together. They are read whole,
// so it bounds the memory of planning.
const matchPage = 2_000

// selectedLettersSQL is a search for given dead letters, with the times at which they died.
const selectedLettersSQL = `SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS u(run_id, value)`

// takeMatching adds those of the next dead letters that scope.Matches accepts; more reports
// whether others may follow.
func (p *planBuilder) takeMatching(ctx context.Context, tx *sql.Tx, plan *search.AccessPlan, scope Scope) (more bool, err error) {
	positions, err := plan.Find(ctx, tx, p.last, int(scope.BatchSize))
	if err != nil || len(positions) == 0 {
		return false, err
	}
	letters, err := search.ReadAt(ctx, tx, positions)
	if err != nil {
		return false, err
	}
	selected := pg.NewTextColumns(2, 0)
	for _, l := range letters {
		if scope.Limit > 0 && p.items+int64(selected.Rows) == scope.Limit {
			break
		}
		matches, err := scope.Matches(ctx, l)
		if err != nil {
			return false, err
		}
		if matches {
			selected.ID(l.Run.ID)
			selected.Time(time.UnixMicro(l.Position.Value).UTC())
		}
	}
	if selected.Rows > 0 {
		if _, err := p.insertLetters(ctx, tx, selectedLettersSQL, selected.Args()); err != nil {
			return false, err
		}
	}
	p.last = positions[len(positions)-1]
	return int64(len(positions)) == scope.BatchSize, nil
}

// unprojectedCasesSQL finds the cases of a tenant's dead runs with receipts that the search
// index does not include yet.
const unprojectedCasesSQL = `
WITH told AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log l, unnest(l.case_ids) AS u(id) WHERE l.last > (SELECT last FROM recourse.projected WHERE name = 'letters')
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id)
)
SELECT DISTINCT r.case_id FROM told t JOIN recourse.runs r ON r.case_id = t.id WHERE r.tenant = $1 AND r.dead_at IS NOT NULL`

// unprojectedCases returns the cases whose dead letters may differ from the search index,
// in a transaction that reads one snapshot: the letters of all other cases are in the index
// as they are. It also returns a few cases that were indexed before their receipts were
// numbered.
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

// CatchUp is Index.CatchUp, and also numbers what was committed before the call:
// otherwise a plan would take that for newer changes.
func (p *Store) CatchUp(ctx context.Context) error {
	if err := p.journal.Outbox.Drain(ctx); err != nil {
		return err
	}
	return p.index.CatchUp(ctx)
}

// planTimeout bounds the building of a plan, and the reading of a whole plan.
const planTimeout = 10 * time.Minute

// Letter is a dead letter of a plan, with the fields that decide whether the action
// would be refused now.
type Letter struct {
	Run    background.Run
	Case   journal.Case
	Amount int64 // that stays reserved for it
	Held   bool
}

// Scope selects the dead letters of a plan.
type Scope struct {
	Filter    search.Filter
	Limit     int64 // the oldest so many; all if 0
	BatchSize int64 // letters per statement; bounds the memory of planning, however large the plan is
	// Matches reports whether a dead letter that the filter selects is in the scope; nil
	// accepts all. It gets them in order, all as of the moment of the plan. Its error ends
	// the planning.
	Matches func(context.Context, search.Letter) (bool, error)
	// ExtraCounts returns more counts to store with the plan, after all letters were
	// matched; may be nil.
	ExtraCounts func() []Count
	// GateOf gets each dead letter in order, and returns the gate that refuses it, or "".
	GateOf func(*Letter) string
	// Hash returns the hash after all letters were added.
	Hash func() [32]byte
	// StaleBefore: a plan of the tenant that was made before this and never started is
	// deleted; one per new plan.
	StaleBefore time.Time
}

// ErrNothingPlanned means that the scope selects no dead letter. Nothing is stored.
var ErrNothingPlanned = errors.New("plans: the plan selects no dead letter")

// Create stores a plan with the dead letters of a scope, oldest first, or not at
// all. First it stores the items, then the plan with its receipt; until then nobody can see
// it, and items left by a plan that was never stored are deleted with stale plans. The
// filter selects letters as the search index has them: see CatchUp. All is of one
// moment. A letter with receipts that are not indexed by then has changed: it is stored
// without a head, so that nothing is done with it.
func (p *Store) Create(ctx context.Context, b Plan, scope Scope) (Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	if scope.Matches != nil {
		scope.BatchSize = min(scope.BatchSize, matchPage)
	}
	if err := p.deleteStalePlan(ctx, &b, scope.StaleBefore); err != nil {
		return b, err
	}
	if err := p.index.Do(ctx, b.Tenant, func(db *sql.DB) error { return storePlanItems(ctx, db, &b, scope) }); err != nil {
		return b, err
	}
	return b, p.insertPlan(ctx, &b)
}

// storePlanItems stores the items of a plan, and sets what the plan says of them.
func storePlanItems(ctx context.Context, db *sql.DB, b *Plan, scope Scope) (err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	unprojected, err := unprojectedCases(ctx, tx, b.Tenant)
	if err != nil {
		return pg.Wrap(err)
	}
	plan, err := search.PlanSearch(ctx, tx, b.Tenant, scope.Filter, search.Order{Column: search.ByDeath}, search.Position{}, int(scope.BatchSize))
	if err != nil {
		return pg.Wrap(err)
	}
	builder := planBuilder{bulk: b.ID, gateOf: scope.GateOf, unprojected: unprojected, counts: map[[2]string]Count{}}
	for more := !plan.Empty(); more; {
		size := scope.BatchSize
		if scope.Limit > 0 {
			size = min(size, scope.Limit-builder.items)
		}
		if scope.Matches != nil {
			more, err = builder.takeMatching(ctx, tx, &plan, scope)
		} else {
			more, err = builder.addBatch(ctx, tx, &plan, size)
		}
		if err != nil {
			return pg.Wrap(err)
		}
		more = more && (scope.Limit == 0 || builder.items < scope.Limit)
	}
	if builder.items == 0 {
		return ErrNothingPlanned
	}
	b.Items, b.Hash, b.State, b.OutcomesKnown, b.HasSettlements = builder.items, scope.Hash(), Planned, true, builder.hasSettlements
	if scope.ExtraCounts != nil {
		for _, c := range scope.ExtraCounts() {
			builder.counts[[2]string{c.Label, c.Currency}] = c
		}
	}
	if err := builder.insertCounts(ctx, tx, b); err != nil {
		return pg.Wrap(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.BulkItems)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.BulkItems)
	return pg.Wrap(err)
}

// planBuilder is a plan that is being built.
type planBuilder struct {
	bulk           uuid.UUID
	gateOf         func(*Letter) string
	unprojected    pq.StringArray // cases, see unprojectedCases
	items          int64
	last           search.Position
	hasSettlements bool // a letter of it is of a settlement
	counts         map[[2]string]Count
}

// insertBatchSQL stores the dead letters that a search finds, and returns them to be
// judged. Their amount is what is reserved for them. No case has the head 0, which stands
// for unprojected cases.
func insertBatchSQL(search string, n int) string {
	bulk, before, unprojected := "$"+strconv.Itoa(n+1), "$"+strconv.Itoa(n+2), "c.id = ANY($"+strconv.Itoa(n+3)+"::uuid[])"
	return `WITH f AS MATERIALIZED (` + search + `), s AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY f.value, f.run_id) + ` + before + `::bigint AS position, f.value, r.id, c.id AS case_id,
    CASE WHEN ` + unprojected + ` THEN 0 ELSE c.last_seq END AS last_seq, CASE WHEN ` + unprojected + ` THEN decode(repeat('00', 32), 'hex') ELSE c.last_link END AS last_link,
    c.reserved AS amount, coalesce(e.currency, '') AS currency, c.kind, r.family, r.target, r.queue, r.remote, r.state, r.letter, r.class, c.progression, c.asked, c.moved, c.reserved, c.unknown_open, c.first_sent_at, coalesce(k.held, false) AS held
  FROM f JOIN recourse.runs r ON r.id = f.run_id JOIN recourse.cases c ON c.id = r.case_id
    LEFT JOIN recourse.escrows e ON e.id = c.escrow_id LEFT JOIN recourse.annotations k ON k.run_id = r.id
), i AS (
  INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency)
  SELECT ` + bulk + `::uuid, position, id, case_id, last_seq, last_link, amount, currency FROM s
) SELECT * FROM s ORDER BY position`
}

// addBatch adds the next dead letters; more reports whether others may follow.
func (p *planBuilder) addBatch(ctx context.Context, tx *sql.Tx, plan *search.AccessPlan, size int64) (more bool, err error) {
	query, args := plan.Statement(p.last, int(size))
	inserted, err := p.insertLetters(ctx, tx, query, args)
	return inserted == size, err
}

// setGatesSQL writes the gates of items. See recordItemsSQL for why the plan is a column of what is joined.
const setGatesSQL = `
WITH g AS MATERIALIZED (SELECT $1::uuid AS bulk_id, * FROM unnest($2::bigint[], $3::text[]) AS g(position, gate))
UPDATE recourse.bulk_items i SET gate = g.gate FROM g WHERE i.bulk_id = g.bulk_id AND i.position = g.position`

// insertLetters stores the dead letters that a search query returns, with their gates.
func (p *planBuilder) insertLetters(ctx context.Context, tx *sql.Tx, query string, args []any) (inserted int64, err error) {
	rows, err := tx.QueryContext(ctx, insertBatchSQL(query, len(args)), append(args, p.bulk, p.items, p.unprojected)...)
	if err != nil {
		return inserted, err
	}
	defer rows.Close()
	gates := pg.NewTextColumns(2, 0)
	for ; rows.Next(); inserted++ {
		l, died, err := scanPlannedLetter(rows)
		if err != nil {
			return inserted, err
		}
		p.items++
		p.last = search.Position{Value: died.UnixMicro(), Run: l.Run.ID}
		gate := p.gateOf(&l)
		if gate != "" {
			gates.Int(p.items)
			gates.Str(gate)
		}
		p.addCount(gate, &l)
	}
	if err := rows.Err(); err != nil || gates.Rows == 0 {
		return inserted, err
	}
	args = append([]any{p.bulk}, gates.Args()...)
	_, err = tx.ExecContext(ctx, setGatesSQL, args...)
	return inserted, err
}

func scanPlannedLetter(rows *sql.Rows) (l Letter, died time.Time, err error) {
	var position int64
	var run, caseID uuid.UUID
	var link []byte
	var sent sql.NullTime
	r, c := &l.Run, &l.Case
	err = rows.Scan(&position, &died, &run, &caseID, &c.Head.Seq, &link, &l.Amount, &c.Currency, &c.Kind, &r.Family, &r.Target, &r.Queue, &r.Remote, &r.State, &r.Letter, &r.Class,
		&c.State.Progression, &c.State.Asked, &c.State.Moved, &c.State.Reserved, &r.UnknownOpen, &sent, &l.Held)
	r.ID, r.Case, c.ID, r.FirstSentAt = background.RunID(run), background.CaseID(caseID), receipts.CaseID(caseID), pg.UTCOrZero(sent)
	copy(c.Head.Link[:], link)
	return l, died, err
}

func (p *planBuilder) addCount(gate string, l *Letter) {
	k := [2]string{gate, l.Case.Currency}
	c := p.counts[k]
	c.Label, c.Currency, c.Items, c.Amount = gate, l.Case.Currency, c.Items+1, c.Amount.Plus(settlement.SumOf(l.Amount))
	p.counts[k] = c
	p.hasSettlements = p.hasSettlements || l.Case.Kind == journal.KindSettlement
}

// insertCounts stores the counts of the plan.
func (p *planBuilder) insertCounts(ctx context.Context, tx *sql.Tx, b *Plan) error {
	for _, c := range p.counts {
		if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.bulk_counts (bulk_id, ran, word, currency, items, amount) VALUES ($1, false, $2, $3, $4, $5)`,
			b.ID, c.Label, c.Currency, c.Items, c.Amount.String()); err != nil {
			return err
		}
	}
	return nil
}
