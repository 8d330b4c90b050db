package trail

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

// OperationLog is a case that has receipts but no run, with the rows that its receipts are
// about, all at one moment.
type OperationLog struct {
	Case    receipts.CaseID
	Subject string
	Head    receipts.Head
	Trail   []receipts.Receipt

	Breaker *Breaker   // if the case is that of a circuit breaker and its row exists
	Rules   []Rule     // if the case is the rule log: all rules, also deleted ones
	Plans   []BulkPlan // if the case is the bulk log

	Webhooks []Webhook // if the case is the webhook log: all webhooks, also deleted ones
}

// Breaker is a circuit breaker.
type Breaker struct {
	Target        string
	State         string // closed, open or half_open
	Manual        bool   // opened by hand
	Actor         string
	Cause, Reason string
	At, OpenedAt  time.Time // of the last move, and of the last opening
	Openings      int64
	RecordedOpen  bool // the tenant's trail has recorded the breaker over all tenants as open
}

// Rule is a replay rule.
type Rule struct {
	Name             string
	Version          int64
	Enabled, Deleted bool
	Definition       string
	Actor, Reason    string
	At               time.Time
}

// BulkPlan is a plan to apply one action to many dead letters.
type BulkPlan struct {
	ID            uuid.UUID
	Tenant        string
	State         string // stored.BulkPlanned and so on
	Action        string
	Request       string // parameters of the action, as JSON
	Actor, Reason string
	PlannedKey    string // prefix of the key that planned it; empty if no key proves who it was
	Hash          [32]byte
	PlannedAt     time.Time
	StartedBy     string
	Incident      string // for which one person started it though two are required, and why
	IncidentWhy   string
	OnePerson     bool // one person was enough to start it, or did for an incident, where usually two are required
	SelfDeclared  bool // no key proves who planned or who started it

	ChangedBy, ChangedWhy string // who paused, resumed or cancelled it, or completed it, and why
	ChangedAt             time.Time
}

// OperationLogs lists the cases of a tenant that have receipts but no run.
func (r *Reader) OperationLogs(ctx context.Context, tenant string) (out []receipts.CaseID, err error) {
	out, err = collect(ctx, r.db, scanCaseID, `SELECT id FROM recourse.cases WHERE tenant = $1 AND kind = 'operations' ORDER BY id`, tenant)
	return out, failed(err)
}

// OperationLog reads a tenant's case without runs. found is false if there is none.
func (r *Reader) OperationLog(ctx context.Context, tenant string, id receipts.CaseID) (o OperationLog, found bool, err error) {
	o.Case = id
	err = r.atOneMoment(ctx, func(tx *sql.Tx) error {
		var link []byte
		err := tx.QueryRowContext(ctx, `SELECT subject, last_seq, last_link FROM recourse.cases WHERE tenant = $1 AND id = $2 AND kind = 'operations'`, tenant, id.String()).Scan(&o.Subject, &o.Head.Seq, &link)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		found = true
		copy(o.Head.Link[:], link)
		if o.Trail, err = stored.CaseTrail(ctx, tx, tenant, id); err != nil {
			return err
		}
		return o.readRows(ctx, tx, tenant)
	})
	return o, found, err
}

// readRows reads the rows that the receipts of the case are about.
func (o *OperationLog) readRows(ctx context.Context, tx *sql.Tx, tenant string) (err error) {
	switch {
	case strings.HasPrefix(o.Subject, stored.BreakerSubjectPrefix):
		err = o.readBreaker(ctx, tx)
	case o.Subject == stored.RuleLog:
		o.Rules, err = collect(ctx, tx, func(rows *sql.Rows) (t Rule, err error) {
			err = rows.Scan(&t.Name, &t.Version, &t.Enabled, &t.Deleted, &t.Definition, &t.Actor, &t.Reason, &t.At)
			t.At = t.At.UTC()
			return t, err
		}, `SELECT name, version, enabled, deleted, definition, actor, reason, at FROM recourse.rules WHERE tenant = $1 AND (version > 0 OR enabled) ORDER BY name`, tenant)
	case o.Subject == stored.WebhookLog:
		o.Webhooks, err = selectWebhooks(ctx, tx, tenant)
	case o.Subject == stored.BulkLog:
		o.Plans, err = collect(ctx, tx, func(rows *sql.Rows) (b BulkPlan, err error) {
			var hash []byte
			var changed sql.NullTime
			err = rows.Scan(&b.ID, &b.State, &b.Action, &b.Request, &b.Actor, &b.Reason, &b.PlannedKey, &hash, &b.PlannedAt, &b.StartedBy, &b.Incident, &b.IncidentWhy, &b.OnePerson, &b.SelfDeclared,
				&b.ChangedBy, &b.ChangedWhy, &changed)
			copy(b.Hash[:], hash)
			b.Tenant, b.PlannedAt = tenant, b.PlannedAt.UTC()
			if changed.Valid {
				b.ChangedAt = changed.Time.UTC()
			}
			return b, err
		}, `SELECT id, state, action, asked, actor, reason, planned_key, hash, planned_at, started_by, incident, started_why, people = 1, declared, changed_by, changed_why, changed_at FROM recourse.bulks WHERE tenant = $1 ORDER BY id`, tenant)
	}
	return err
}

func (o *OperationLog) readBreaker(ctx context.Context, tx *sql.Tx) error {
	return eachRow(ctx, tx, func(rows *sql.Rows) error {
		var b Breaker
		err := rows.Scan(&b.Target, &b.State, &b.Manual, &b.Actor, &b.Cause, &b.Reason, &b.At, &b.OpenedAt, &b.Openings, &b.RecordedOpen)
		b.At, b.OpenedAt = b.At.UTC(), b.OpenedAt.UTC()
		o.Breaker = &b
		return err
	}, `SELECT target, state, by_hand, actor, cause, reason, at, opened_at, opening, k.recorded_opening > k.recorded_closing FROM recourse.circuit_breakers k WHERE case_id = $1`, o.Case.String())
}

// PlanItem is a dead letter of a plan, as its digest has it.
type PlanItem struct {
	Run      receipts.RunID
	Head     receipts.Head // of the case when the plan was made
	Amount   int64
	Currency string
}

// PlanItems visits all items of a plan in order, without keeping them in memory.
func (r *Reader) PlanItems(ctx context.Context, plan uuid.UUID, visit func(PlanItem)) error {
	return failed(eachRow(ctx, r.db, func(rows *sql.Rows) error {
		var i PlanItem
		var run uuid.UUID
		var link []byte
		if err := rows.Scan(&run, &i.Head.Seq, &link, &i.Amount, &i.Currency); err != nil {
			return err
		}
		i.Run = receipts.RunID(run)
		copy(i.Head.Link[:], link)
		visit(i)
		return nil
	}, `SELECT run_id, seq, link, amount, currency FROM recourse.bulk_items WHERE bulk_id = $1 ORDER BY position`, plan))
}

// HasPlan reports whether a plan is stored now.
func (r *Reader) HasPlan(ctx context.Context, plan uuid.UUID) (has bool, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.bulks WHERE id = $1)`, plan).Scan(&has)
	return has, failed(err)
}
