package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// What keeps a rule from a letter after all. Nothing was written.
var (
	ErrRuleChanged   = errors.New("postgres: the rule is not as it was")
	ErrRuleExhausted = errors.New("postgres: the rule has replayed the letter as often as it may")
)

// RuleAction is beside what a rule does with a letter: it is done only while the rule is
// as it was when that was decided, and counted in the same commit.
type RuleAction struct {
	Tenant, Rule string
	Version      int64
	Replay       *RuleReplay     // of a fork
	Annotations  *AnnotationsRow // of a mark
}

// RuleReplay counts one replay of a lineage.
type RuleReplay struct {
	Root  background.RunID // of the lineage
	Limit int              // that the rule allows
	At    time.Time
}

func (RuleAction) failpointName() string { return failpoint.RuleAction }

func (b RuleAction) write(ctx context.Context, tx *sql.Tx) error {
	return writeRuleActions(ctx, tx, []RuleAction{b})
}

// countReplaysSQL counts replays of lineages, each of another, as far as each may be
// replayed once more.
const countReplaysSQL = `
INSERT INTO recourse.rule_replays AS r (root, rule, tenant, replays, last_at)
SELECT u.root, $1, $2, 1, $3 FROM unnest($4::uuid[]) AS u(root)
ON CONFLICT (root, rule) DO UPDATE SET replays = r.replays + 1, last_at = excluded.last_at WHERE r.replays < $5`

// writeRuleActions writes what is beside changes that one rule made. It holds the rule's row
// until the commit: whoever changes the rule waits for it, and nothing is done by the old
// one behind that.
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
	roots := newColumns(1, len(all))
	for _, next := range all {
		if next.Tenant != b.Tenant || next.Rule != b.Rule || next.Version != b.Version {
			return errMixedRules
		}
		if next.Annotations != nil {
			annotations = append(annotations, *next.Annotations)
		}
		if next.Replay != nil {
			b.Replay = next.Replay
			roots.id(next.Replay.Root)
		}
	}
	if err := upsertAnnotations(ctx, tx, annotations); err != nil || roots.rows == 0 {
		return err
	}
	done, err := tx.ExecContext(ctx, countReplaysSQL, append([]any{b.Rule, b.Tenant, b.Replay.At}, append(roots.args(), b.Replay.Limit)...)...)
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err == nil && n < int64(roots.rows) {
		err = ErrRuleExhausted
	}
	return err
}

// errMixedRules: what shares a commit is of one version of one rule.
var errMixedRules = errors.New("postgres: changes by several rules were to share a commit")

// RuleReplayCount tells how a rule has replayed a lineage.
type RuleReplayCount struct {
	Rule    string
	Replays int
	LastAt  time.Time
}

// LineageReplays is the lineage of a run: its first run, and what rules did to it, the
// latest first.
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
func (j *Journal) LineageReplays(ctx context.Context, tenant string, runs []background.RunID) (map[background.RunID]LineageReplays, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c := newColumns(1, len(runs))
	for _, id := range runs {
		c.id(id)
	}
	rows, err := j.readDB.QueryContext(ctx, lineageReplaysSQL, append(c.args(), tenant)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	out := make(map[background.RunID]LineageReplays, len(runs))
	for rows.Next() {
		var run, root uuid.UUID
		var by RuleReplayCount
		var last sql.NullTime
		if err := rows.Scan(&run, &root, &by.Rule, &by.Replays, &last); err != nil {
			return nil, unavailable(err)
		}
		lineage := out[background.RunID(run)]
		lineage.Root = background.RunID(root)
		if by.LastAt = last.Time.UTC(); last.Valid {
			lineage.ByRule = append(lineage.ByRule, by)
		}
		out[background.RunID(run)] = lineage
	}
	return out, unavailableOrNil(rows.Err())
}
