package plans

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/settlement"
)

// State is the state of a bulk plan.
type State string

// The states. The last three are final.
const (
	Planned   State = stored.BulkPlanned
	Running   State = stored.BulkRunning
	Paused    State = stored.BulkPaused
	Done      State = stored.BulkDone
	Cancelled State = stored.BulkCancelled
	Refused   State = stored.BulkRefused
)

// States are all states.
var States = []State{Planned, Running, Paused, Done, Cancelled, Refused}

// Plan is a plan to apply one action to many dead letters of a tenant.
type Plan struct {
	ID             uuid.UUID
	Number         int32 // identifies the lock of whoever works on it
	Tenant         string
	State          State
	OutcomesKnown  bool // false: cancelled, and some items may have been acted on without an outcome
	Action         string
	Request        string // parameters of the action, as JSON
	MadeFor        string // the HTTP request that made it, which makes no other plan; empty: none
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

type planRow struct {
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
	MadeFor        string       `db:"made_for"`
}

func (r *planRow) plan() Plan {
	b := Plan{
		ID: r.ID, Number: r.Number, Tenant: r.Tenant, State: State(r.State), OutcomesKnown: r.OutcomesKnown, Action: r.Action, Request: r.Request,
		Actor: r.Actor, PlannedKey: r.PlannedKey, Reason: r.Reason, HasSettlements: r.HasSettlements, Parallel: r.Parallel, Throttle: r.Throttle, Items: r.Items, PlannedAt: r.PlannedAt.UTC(),
		StartedBy: r.StartedBy, StartedKey: r.StartedKey, IncidentReason: r.IncidentReason, StartedAt: pg.UTCOrZero(r.StartedAt), People: r.People, SelfDeclared: r.SelfDeclared, Incident: r.Incident,
		ChangedBy: r.ChangedBy, ChangeReason: r.ChangeReason, ChangedAt: pg.UTCOrZero(r.ChangedAt), EndedAt: pg.UTCOrZero(r.EndedAt),
		MadeFor: r.MadeFor,
	}
	copy(b.Hash[:], r.Hash)
	return b
}

const planSQL = `SELECT id, number, tenant, state, settled, action, asked, actor, planned_key, reason, settles, parallel, throttle, items, hash, planned_at,
  started_by, started_key, started_why, started_at, people, declared, incident, changed_by, changed_why, changed_at, ended_at, made_for FROM recourse.bulks `

// Store keeps bulk plans and their items. It is safe for concurrent use by any number of
// goroutines and processes.
type Store struct {
	journal *journal.Journal
	index   *search.Index
	readDB  *sqlx.DB
}

// New returns the plans of a journal's database, on its connections and on those of its
// index. Both stay open for as long.
func New(j *journal.Journal, index *search.Index) *Store {
	return &Store{journal: j, index: index, readDB: sqlx.NewDb(j.Reads(), "postgres")}
}

// Find reads a plan of a tenant. It returns ErrNotFound if there is none.
func (p *Store) Find(ctx context.Context, tenant string, id uuid.UUID) (Plan, error) {
	return p.one(ctx, `WHERE tenant = $1 AND id = $2`, tenant, id)
}

// MadeFor reads the plan that a request of a tenant made. It returns ErrNotFound if it made none.
func (p *Store) MadeFor(ctx context.Context, tenant, request string) (Plan, error) {
	return p.one(ctx, `WHERE tenant = $1 AND made_for = $2 AND made_for <> ''`, tenant, request)
}

func (p *Store) one(ctx context.Context, where string, args ...any) (Plan, error) {
	found, err := selectPlans(ctx, p.readDB, where, args...)
	if err == nil && len(found) == 0 {
		err = background.ErrNotFound
	}
	if err != nil {
		return Plan{}, err
	}
	return found[0], nil
}

// List lists plans of a tenant in a state, newest first, strictly before one. The empty state
// lists those in any state, and the zero id begins with the newest.
func (p *Store) List(ctx context.Context, tenant string, state State, before uuid.UUID, limit int) ([]Plan, error) {
	if before == (uuid.UUID{}) {
		before = uuid.Max
	}
	return selectPlans(ctx, p.readDB, `WHERE tenant = $1 AND id < $2 AND ($3 = '' OR state = $3) ORDER BY id DESC LIMIT $4`, tenant, before, state, limit)
}

// ListWaiting lists the plans of a tenant that wait for a person, newest first, strictly before one.
func (p *Store) ListWaiting(ctx context.Context, tenant string, before uuid.UUID, limit int) ([]Plan, error) {
	if before == (uuid.UUID{}) {
		before = uuid.Max
	}
	return selectPlans(ctx, p.readDB, `WHERE tenant = $1 AND id < $2 AND `+stored.WaitingBulks+` ORDER BY id DESC LIMIT $3`, tenant, before, limit)
}

// Unfinished lists the plans of all tenants that a process should work on.
func (p *Store) Unfinished(ctx context.Context) ([]Plan, error) {
	return selectPlans(ctx, p.readDB, `WHERE state = 'running' OR NOT settled ORDER BY number`)
}

// DoneWith lists the plans of a tenant with an action that are done, newest first.
func (p *Store) DoneWith(ctx context.Context, tenant, action string) ([]Plan, error) {
	return selectPlans(ctx, p.readDB, `WHERE tenant = $1 AND action = $2 AND state = 'done' ORDER BY id DESC`, tenant, action)
}

func selectPlans(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) ([]Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []planRow
	if err := sqlx.SelectContext(ctx, q, &rows, planSQL+where, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]Plan, len(rows))
	for i := range rows {
		out[i] = rows[i].plan()
	}
	return out, nil
}

// Count counts the items of a plan with one label and currency, and adds up their
// amounts.
type Count struct {
	ByOutcome bool           `db:"ran"`  // Label is an outcome; else the gate that refused them when the plan was made
	Label     string         `db:"word"` // empty: no gate. Scanned and Undecided count letters that need not be items
	Currency  string         `db:"currency"`
	Items     int64          `db:"items"`
	Amount    settlement.Sum `db:"amount"`
}

// Labels of counts of the letters that were matched for the plan. No gate has these names.
const (
	Scanned   = stored.BulkScanned
	Undecided = stored.BulkUndecided // of the scanned ones
)

// Counts reads the counts of a plan.
func (p *Store) Counts(ctx context.Context, id uuid.UUID) ([]Count, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var out []Count
	err := p.readDB.SelectContext(ctx, &out, `SELECT ran, word, currency, items, amount FROM recourse.bulk_counts WHERE bulk_id = $1 ORDER BY ran, word, currency`, id)
	return out, pg.Wrap(err)
}

const forksSQL = `SELECT CASE WHEN r.live THEN 'live' ELSE r.state END, count(*) FROM recourse.bulk_items i JOIN recourse.runs r ON r.id = i.new_run
WHERE i.bulk_id = $1 GROUP BY 1`

// CountForks counts the runs that a plan created by their final state; "live" for those
// that have not ended.
func (p *Store) CountForks(ctx context.Context, id uuid.UUID) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return countWords(ctx, p.readDB, forksSQL, id)
}
