package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// RuleLog has the receipts of a tenant's rules.
const RuleLog OperationLog = "rules"

// MaxRules is how many rules a tenant can have.
const MaxRules = 100

// ErrTooManyRules tells that a tenant has MaxRules already.
var ErrTooManyRules = errors.New("postgres: the tenant has as many rules as it can have")

// Rule is a rule of a tenant. Version 0 means that there never was one of the name.
type Rule struct {
	Tenant     string    `db:"tenant"`
	Name       string    `db:"name"`
	Version    int64     `db:"version"`
	Enabled    bool      `db:"enabled"`
	Deleted    bool      `db:"deleted"`
	Definition string    `db:"definition"`
	Actor      string    `db:"actor"`
	Reason     string    `db:"reason"`
	At         time.Time `db:"at"`
}

// Exists reports whether there is such a rule.
func (r *Rule) Exists() bool { return r.Version > 0 && !r.Deleted }

const ruleSQL = `SELECT tenant, name, version, enabled, deleted, definition, actor, reason, at FROM recourse.rules `

// Rules lists the rules of a tenant by name.
func (j *Journal) Rules(ctx context.Context, tenant string) ([]Rule, error) {
	return j.selectRules(ctx, `WHERE tenant = $1 AND version > 0 AND NOT deleted ORDER BY name`, tenant)
}

// EnabledRules lists the rules that are to be applied, for all tenants.
func (j *Journal) EnabledRules(ctx context.Context) ([]Rule, error) {
	return j.selectRules(ctx, `WHERE enabled ORDER BY tenant, name`)
}

func (j *Journal) selectRules(ctx context.Context, where string, args ...any) ([]Rule, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var found []Rule
	if err := j.readDB.SelectContext(ctx, &found, ruleSQL+where, args...); err != nil {
		return nil, unavailable(err)
	}
	for i := range found {
		found[i].At = found[i].At.UTC()
	}
	return found, nil
}

// UpdateRule makes, changes or deletes a rule together with its receipt. decide gives
// the rule as it is to be, or why it is not; it is called once, on the locked row. The
// next version is the next number. After any other error than decide's and
// ErrTooManyRules it is not known whether it was changed: look again.
func (j *Journal) UpdateRule(ctx context.Context, tenant, name string, decide func(now Rule) (Rule, receipts.Draft, error)) (now Rule, err error) {
	err = j.inSlowPathTx(ctx, failpoint.Rule, func(ctx context.Context, tx *sql.Tx) error {
		if now, err = lockRule(ctx, tx, tenant, name); err != nil {
			return err
		}
		next, draft, err := decide(now)
		if err != nil {
			return err
		}
		next.Tenant, next.Name, next.Version = tenant, name, now.Version+1
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.rules SET version = $3, enabled = $4, deleted = $5, definition = $6, actor = $7, reason = $8, at = $9
			WHERE tenant = $1 AND name = $2`, tenant, name, next.Version, next.Enabled, next.Deleted, next.Definition, next.Actor, next.Reason, next.At); err != nil {
			return err
		}
		draft.Subtype = receipts.RuleChanged
		if err := appendOperation(ctx, tx, tenant, RuleLog, draft); err != nil {
			return err
		}
		created := !now.Exists()
		now = next
		if created {
			return checkRuleLimit(ctx, tx, tenant)
		}
		return nil
	})
	return now, err
}

// lockRule locks the row of a rule, made now when there is none.
func lockRule(ctx context.Context, tx *sql.Tx, tenant, name string) (Rule, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at)
		VALUES ($1, $2, 0, false, false, '', '', '', $3) ON CONFLICT DO NOTHING`, tenant, name, time.Time{}); err != nil {
		return Rule{}, err
	}
	rows, err := tx.QueryContext(ctx, ruleSQL+`WHERE tenant = $1 AND name = $2 FOR NO KEY UPDATE`, tenant, name)
	if err != nil {
		return Rule{}, err
	}
	var found []Rule
	if err := sqlx.StructScan(rows, &found); err != nil {
		return Rule{}, err
	}
	if len(found) != 1 {
		return Rule{}, fmt.Errorf("%d rules of one name", len(found))
	}
	found[0].At = found[0].At.UTC()
	return found[0], nil
}

// checkRuleLimit counts what a tenant has while the register is held, so that of two who
// make the last one at once, one does.
func checkRuleLimit(ctx context.Context, tx *sql.Tx, tenant string) error {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM recourse.rules WHERE tenant = $1 AND version > 0 AND NOT deleted`, tenant).Scan(&n)
	if err == nil && n > MaxRules {
		err = ErrTooManyRules
	}
	return err
}

// The lock of whoever applies rules, beside the pruner's.
const tryReplayLockSQL = `SELECT pg_try_advisory_lock(1919119987, 3)`

// ExclusiveReplay runs work while no other process applies rules. It reports false, and
// runs nothing, when another does. The lock only saves work: see ExclusivePrune.
func (j *Journal) ExclusiveReplay(ctx context.Context, work func() error) (acquired bool, err error) {
	conn, err := j.readDB.Conn(ctx)
	if err != nil {
		return false, unavailable(err)
	}
	defer func() { err = errors.Join(err, releaseLocks(ctx, conn)) }()
	if err := conn.QueryRowContext(ctx, tryReplayLockSQL).Scan(&acquired); err != nil {
		return false, unavailable(err)
	}
	if !acquired {
		return false, nil
	}
	return true, work()
}
