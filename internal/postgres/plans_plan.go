package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// BulkState is the state of a bulk plan.
type BulkState string

// The states. The last two are final.
const (
	BulkPlanned   BulkState = stored.BulkPlanned
	BulkRunning   BulkState = stored.BulkRunning
	BulkPaused    BulkState = stored.BulkPaused
	BulkDone      BulkState = stored.BulkDone
	BulkCancelled BulkState = stored.BulkCancelled
)

// BulkPlan is a plan to apply one action to many dead letters of a tenant.
type BulkPlan struct {
	ID             uuid.UUID
	Number         int32 // identifies the lock of whoever works on it
	Tenant         string
	State          BulkState
	OutcomesKnown  bool // false: cancelled, and some items may have been acted on without an outcome
	Action         string
	Request        string // parameters of the action, as JSON
	Actor          string
	PlannedKey     string // prefix of the key that planned it; empty if no key proves who it was
	Reason         string
	HasSettlements bool // one of its dead letters is of a settlement
	Parallel       int
	Throttle       int // items a second; 0 for no limit
	Items          int64
	Hash           [32]byte

	PlannedAt      time.Time
	StartedBy      string
	StartedKey     string // prefix of the key that started it; likewise
	IncidentReason string // of a person who started it alone, for an incident
	StartedAt      time.Time
	People         int    // required to start it; 0: it moves no money, or an older program started it
	SelfDeclared   bool   // the name of somebody who planned or started it is not proven by a key
	Incident       string // for which one person started it though two are required
	ChangedBy      string // who paused, resumed or cancelled it, or completed it
	ChangeReason   string
	ChangedAt      time.Time
	EndedAt        time.Time
}

type bulkPlanRow struct {
	ID             uuid.UUID    `db:"id"`
	Number         int32        `db:"number"`
	Tenant         string       `db:"tenant"`
	State          string       `db:"state"`
	OutcomesKnown  bool         `db:"settled"`
	Action         string       `db:"action"`
	Request        string       `db:"asked"`
	Actor          string       `db:"actor"`
	PlannedKey     string       `db:"planned_key"`
	Reason         string       `db:"reason"`
	HasSettlements bool         `db:"settles"`
	Parallel       int          `db:"parallel"`
	Throttle       int          `db:"throttle"`
	Items          int64        `db:"items"`
	Hash           []byte       `db:"hash"`
	PlannedAt      time.Time    `db:"planned_at"`
	StartedBy      string       `db:"started_by"`
	StartedKey     string       `db:"started_key"`
	IncidentReason string       `db:"started_why"`
	StartedAt      sql.NullTime `db:"started_at"`
	People         int          `db:"people"`
	SelfDeclared   bool         `db:"declared"`
	Incident       string       `db:"incident"`
	ChangedBy      string       `db:"changed_by"`
	ChangeReason   string       `db:"changed_why"`
	ChangedAt      sql.NullTime `db:"changed_at"`
	EndedAt        sql.NullTime `db:"ended_at"`
}

func (r *bulkPlanRow) plan() BulkPlan {
	b := BulkPlan{
		ID: r.ID, Number: r.Number, Tenant: r.Tenant, State: BulkState(r.State), OutcomesKnown: r.OutcomesKnown, Action: r.Action, Request: r.Request,
		Actor: r.Actor, PlannedKey: r.PlannedKey, Reason: r.Reason, HasSettlements: r.HasSettlements, Parallel: r.Parallel, Throttle: r.Throttle, Items: r.Items, PlannedAt: r.PlannedAt.UTC(),
		StartedBy: r.StartedBy, StartedKey: r.StartedKey, IncidentReason: r.IncidentReason, StartedAt: utcOrZero(r.StartedAt), People: r.People, SelfDeclared: r.SelfDeclared, Incident: r.Incident,
		ChangedBy: r.ChangedBy, ChangeReason: r.ChangeReason, ChangedAt: utcOrZero(r.ChangedAt), EndedAt: utcOrZero(r.EndedAt),
	}
	copy(b.Hash[:], r.Hash)
	return b
}

const bulkPlanSQL = `SELECT id, number, tenant, state, settled, action, asked, actor, planned_key, reason, settles, parallel, throttle, items, hash, planned_at,
  started_by, started_key, started_why, started_at, people, declared, incident, changed_by, changed_why, changed_at, ended_at FROM recourse.bulks `

// PlanStore keeps bulk plans and their items. It is safe for concurrent use by any number of
// goroutines and processes.
type PlanStore struct {
	journal *Journal
	index   *Index
	readDB  *sqlx.DB
}

// NewPlanStore returns the plans of a journal's database, on its connections and on those of its
// index. Both stay open for as long.
func NewPlanStore(j *Journal, index *Index) *PlanStore {
	return &PlanStore{journal: j, index: index, readDB: sqlx.NewDb(j.Reads(), "postgres")}
}

// Find reads a plan of a tenant. It returns ErrNotFound if there is none.
func (p *PlanStore) Find(ctx context.Context, tenant string, id uuid.UUID) (BulkPlan, error) {
	found, err := selectBulkPlans(ctx, p.readDB, `WHERE tenant = $1 AND id = $2`, tenant, id)
	if err == nil && len(found) == 0 {
		err = background.ErrNotFound
	}
	if err != nil {
		return BulkPlan{}, err
	}
	return found[0], nil
}

// List lists plans of a tenant, newest first, strictly before one; the zero id begins
// with the newest.
func (p *PlanStore) List(ctx context.Context, tenant string, before uuid.UUID, limit int) ([]BulkPlan, error) {
	if before == (uuid.UUID{}) {
		before = uuid.Max
	}
	return selectBulkPlans(ctx, p.readDB, `WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, tenant, before, limit)
}

// Unfinished lists the plans of all tenants that a process should work on.
func (p *PlanStore) Unfinished(ctx context.Context) ([]BulkPlan, error) {
	return selectBulkPlans(ctx, p.readDB, `WHERE state = 'running' OR NOT settled ORDER BY number`)
}

func selectBulkPlans(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) ([]BulkPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var rows []bulkPlanRow
	if err := sqlx.SelectContext(ctx, q, &rows, bulkPlanSQL+where, args...); err != nil {
		return nil, unavailable(err)
	}
	out := make([]BulkPlan, len(rows))
	for i := range rows {
		out[i] = rows[i].plan()
	}
	return out, nil
}

// BulkCount counts the items of a plan with one label and currency, and adds up their
// amounts.
type BulkCount struct {
	ByOutcome bool   `db:"ran"`  // Label is an outcome; else the gate that refused them when the plan was made
	Label     string `db:"word"` // empty: no gate. BulkScanned and BulkUndecided count letters that need not be items
	Currency  string `db:"currency"`
	Items     int64  `db:"items"`
	Amount    int64  `db:"amount"`
}

// Labels of counts of the letters that were matched for the plan. No gate has these names.
const (
	BulkScanned   = stored.BulkScanned
	BulkUndecided = stored.BulkUndecided // of the scanned ones
)

// Counts reads the counts of a plan.
func (p *PlanStore) Counts(ctx context.Context, id uuid.UUID) ([]BulkCount, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var out []BulkCount
	err := p.readDB.SelectContext(ctx, &out, `SELECT ran, word, currency, items, amount FROM recourse.bulk_counts WHERE bulk_id = $1 ORDER BY ran, word, currency`, id)
	return out, unavailableOrNil(err)
}

const bulkForksSQL = `SELECT CASE WHEN r.live THEN 'live' ELSE r.state END, count(*) FROM recourse.bulk_items i JOIN recourse.runs r ON r.id = i.new_run
WHERE i.bulk_id = $1 GROUP BY 1`

// CountForks counts the runs that a plan created by their final state; "live" for those
// that have not ended.
func (p *PlanStore) CountForks(ctx context.Context, id uuid.UUID) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := p.readDB.QueryContext(ctx, bulkForksSQL, id)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	forks := map[string]int64{}
	for rows.Next() {
		var state string
		var n int64
		if err := rows.Scan(&state, &n); err != nil {
			return nil, unavailable(err)
		}
		forks[state] = n
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(err)
	}
	return forks, nil
}
