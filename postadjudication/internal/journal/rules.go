package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// RuleLog has the receipts of a tenant's rules.
const RuleLog OperationLog = stored.RuleLog

// MaxRules is the most rules that a tenant can have.
const MaxRules = 100

// ErrTooManyRules means that a tenant has MaxRules already.
var ErrTooManyRules = errors.New("journal: the tenant has as many rules as it can have")

// Rule is a replay rule of a tenant. Version 0 means that there never was one of the name.
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

// Exists reports whether the rule exists.
func (r *Rule) Exists() bool { return r.Version > 0 && !r.Deleted }

const ruleSQL = `SELECT tenant, name, version, enabled, deleted, definition, actor, reason, at FROM recourse.rules `

// Rules keeps replay rules.
type Rules struct {
	*shared
}

// List lists the rules of a tenant by name.
func (r *Rules) List(ctx context.Context, tenant string) ([]Rule, error) {
	return r.selectRules(ctx, `WHERE tenant = $1 AND version > 0 AND NOT deleted ORDER BY name`, tenant)
}

// Enabled lists the enabled rules of all tenants.
func (r *Rules) Enabled(ctx context.Context) ([]Rule, error) {
	return r.selectRules(ctx, `WHERE enabled ORDER BY tenant, name`)
}

func (r *Rules) selectRules(ctx context.Context, where string, args ...any) ([]Rule, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var found []Rule
	if err := r.readDB.SelectContext(ctx, &found, ruleSQL+where, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	for i := range found {
		found[i].At = found[i].At.UTC()
	}
	return found, nil
}

// Update creates, changes or deletes a rule together with its receipt. decide returns
// the changed rule or an error; it is called once, on the locked row. The version is
// incremented. After any error except ErrTooManyRules and those of decide the outcome is
// unknown: read the rule again.
func (r *Rules) Update(ctx context.Context, tenant, name string, decide func(now Rule) (Rule, receipts.Draft, error)) (now Rule, err error) {
	err = r.InSlowPathTx(ctx, failpoint.Rule, func(ctx context.Context, tx *sql.Tx) error {
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
		if err := AppendOperation(ctx, tx, tenant, RuleLog, draft); err != nil {
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

// lockRule locks the row of a rule, and inserts it first if there is none.
func lockRule(ctx context.Context, tx *sql.Tx, tenant, name string) (Rule, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at)
		VALUES ($1, $2, 0, false, false, '', '', '', $3) ON CONFLICT DO NOTHING`, tenant, name, time.Time{}); err != nil {
		return Rule{}, err
	}
	found, err := pg.QueryAll[Rule](ctx, tx, ruleSQL+`WHERE tenant = $1 AND name = $2 FOR NO KEY UPDATE`, tenant, name)
	if err != nil {
		return Rule{}, err
	}
	if len(found) != 1 {
		return Rule{}, fmt.Errorf("%d rules of one name", len(found))
	}
	found[0].At = found[0].At.UTC()
	return found[0], nil
}

// checkRuleLimit counts a tenant's rules while the rule log is locked, so that concurrent
// calls can't exceed the limit.
func checkRuleLimit(ctx context.Context, tx *sql.Tx, tenant string) error {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM recourse.rules WHERE tenant = $1 AND version > 0 AND NOT deleted`, tenant).Scan(&n)
	if err == nil && n > MaxRules {
		err = ErrTooManyRules
	}
	return err
}

// The advisory lock of rules; its key follows that of retention.
const tryReplayLockSQL = `SELECT pg_try_advisory_lock(1919119987, 3)`

// Exclusive runs work while no other process applies rules. It reports false, without
// running work, if another process does. The lock only saves work: see Letters.Exclusive.
func (r *Rules) Exclusive(ctx context.Context, work func() error) (acquired bool, err error) {
	return pg.Exclusive(ctx, r.readDB.DB, tryReplayLockSQL, work)
}

// Why a rule was not applied. Nothing was written.
var (
	ErrRuleChanged   = errors.New("journal: the rule changed")
	ErrRuleExhausted = errors.New("journal: the rule has reached its limit of replays of the lineage")
)

// RuleAction is the SideEffect of a change by a rule: the change is written only if the
// rule has not changed since the decision, and is counted in the same commit.
type RuleAction struct {
	Tenant, Rule string
	Version      int64
	Replay       *RuleReplay     // set for a fork
	Annotations  *AnnotationsRow // set for a mark
}

// RuleReplay counts one replay of a lineage.
type RuleReplay struct {
	Root  background.RunID // first run of the lineage
	Limit int              // that the rule allows
	At    time.Time
}

func (RuleAction) failpointName() string { return failpoint.RuleAction }

func (a RuleAction) write(ctx context.Context, tx *sql.Tx) error {
	return writeRuleActions(ctx, tx, []RuleAction{a})
}

// countReplaysSQL counts one replay for each of several lineages, for those below their
// limit.
const countReplaysSQL = `
INSERT INTO recourse.rule_replays AS r (root, rule, tenant, replays, last_at)
SELECT u.root, $1, $2, 1, $3 FROM unnest($4::uuid[]) AS u(root)
ON CONFLICT (root, rule) DO UPDATE SET replays = r.replays + 1, last_at = excluded.last_at WHERE r.replays < $5`

// writeRuleActions writes the side effects of changes by one rule. It locks the rule's row
// until the commit: a change of the rule waits, and after it the old rule does nothing
// more.
func writeRuleActions(ctx context.Context, tx *sql.Tx, all []RuleAction) error {
	if len(all) == 0 {
		return nil
	}
	b := all[0]
	var exists bool
	err := tx.QueryRowContext(ctx, `SELECT true FROM recourse.rules WHERE tenant = $1 AND name = $2 AND version = $3 AND enabled FOR SHARE`, b.Tenant, b.Rule, b.Version).Scan(&exists)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrRuleChanged
	}
	if err != nil {
		return err
	}
	var annotations []AnnotationsRow
	roots := pg.NewTextColumns(1, len(all))
	for _, next := range all {
		if next.Tenant != b.Tenant || next.Rule != b.Rule || next.Version != b.Version {
			return errMixedRules
		}
		if next.Annotations != nil {
			annotations = append(annotations, *next.Annotations)
		}
		if next.Replay != nil {
			b.Replay = next.Replay
			roots.ID(next.Replay.Root)
		}
	}
	if err := upsertAnnotations(ctx, tx, annotations); err != nil || roots.Rows == 0 {
		return err
	}
	done, err := tx.ExecContext(ctx, countReplaysSQL, append([]any{b.Rule, b.Tenant, b.Replay.At}, append(roots.Args(), b.Replay.Limit)...)...)
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err == nil && n < int64(roots.Rows) {
		err = ErrRuleExhausted
	}
	return err
}

// errMixedRules: all changes of a batch must be of one version of one rule.
var errMixedRules = errors.New("journal: changes of several rules in one batch")

// RuleReplayCount is how often a rule has replayed a lineage.
type RuleReplayCount struct {
	Rule    string
	Replays int
	LastAt  time.Time
}

// LineageReplays is the lineage of a run: its first run, and the replays by rules, latest
// first.
type LineageReplays struct {
	Root   background.RunID
	ByRule []RuleReplayCount
}

const lineageReplaysSQL = `
WITH RECURSIVE up AS (
  SELECT r.id AS run, r.id, r.parent_id FROM recourse.runs r WHERE r.id = ANY($1::uuid[]) AND r.tenant = $2
  UNION ALL
  SELECT u.run, r.id, r.parent_id FROM up u JOIN recourse.runs r ON r.id = u.parent_id
)
SELECT u.run, u.id, coalesce(c.rule, ''), coalesce(c.replays, 0), c.last_at FROM up u LEFT JOIN recourse.rule_replays c ON c.root = u.id
WHERE u.parent_id IS NULL ORDER BY u.run, c.last_at DESC, c.rule`

// LineageReplays reads the lineages of runs of a tenant.
func (r *Rules) LineageReplays(ctx context.Context, tenant string, runs []background.RunID) (map[background.RunID]LineageReplays, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(1, len(runs))
	for _, id := range runs {
		c.ID(id)
	}
	rows, err := r.readDB.QueryContext(ctx, lineageReplaysSQL, append(c.Args(), tenant)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := make(map[background.RunID]LineageReplays, len(runs))
	for rows.Next() {
		var run, root uuid.UUID
		var by RuleReplayCount
		var last sql.NullTime
		if err := rows.Scan(&run, &root, &by.Rule, &by.Replays, &last); err != nil {
			return nil, pg.Wrap(err)
		}
		lineage := out[background.RunID(run)]
		lineage.Root = background.RunID(root)
		if by.LastAt = last.Time.UTC(); last.Valid {
			lineage.ByRule = append(lineage.ByRule, by)
		}
		out[background.RunID(run)] = lineage
	}
	return out, pg.Wrap(rows.Err())
}
