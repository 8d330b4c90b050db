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
	ErrRuleChanged = errors.New("postgres: the rule is not as it was")
	ErrRuleSpent   = errors.New("postgres: the rule has replayed the letter as often as it may")
)

// ByRule is beside what a rule does with a letter: it is done only while the rule is
// as it was when that was decided, and counted in the same commit.
type ByRule struct {
	Tenant, Rule string
	Version      int64
	Replay       *RuleReplay // of a fork
	Desk         *DeskRow    // of a mark
}

// RuleReplay counts one replay of a lineage.
type RuleReplay struct {
	Root background.RunID // of the lineage
	Most int              // that the rule allows
	At   time.Time
}

func (ByRule) point() string { return failpoint.RuleAct }

func (b ByRule) write(ctx context.Context, tx *sql.Tx) error {
	return writeByRule(ctx, tx, []ByRule{b})
}

// countReplaysSQL counts replays of lineages, each of another, as far as each may be
// replayed once more.
const countReplaysSQL = `
INSERT INTO recourse.rule_replays AS r (root, rule, tenant, replays, last_at)
SELECT u.root, $1, $2, 1, $3 FROM unnest($4::uuid[]) AS u(root)
ON CONFLICT (root, rule) DO UPDATE SET replays = r.replays + 1, last_at = excluded.last_at WHERE r.replays < $5`

// writeByRule writes what is beside changes that one rule made. It holds the rule's row
// until the commit: whoever changes the rule waits for it, and nothing is done by the old
// one behind that.
func writeByRule(ctx context.Context, tx *sql.Tx, all []ByRule) error {
	if len(all) == 0 {
		return nil
	}
	b := all[0]
	var there bool
	err := tx.QueryRowContext(ctx, `SELECT true FROM recourse.rules WHERE tenant = $1 AND name = $2 AND version = $3 AND enabled FOR SHARE`, b.Tenant, b.Rule, b.Version).Scan(&there)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrRuleChanged
	}
	if err != nil {
		return err
	}
	var desks []DeskRow
	roots := newColumns(1, len(all))
	for _, next := range all {
		if next.Tenant != b.Tenant || next.Rule != b.Rule || next.Version != b.Version {
			return errOneRule
		}
		if next.Desk != nil {
			desks = append(desks, *next.Desk)
		}
		if next.Replay != nil {
			b.Replay = next.Replay
			roots.id(next.Replay.Root)
		}
	}
	if err := setDesks(ctx, tx, desks); err != nil || roots.rows == 0 {
		return err
	}
	done, err := tx.ExecContext(ctx, countReplaysSQL, append([]any{b.Rule, b.Tenant, b.Replay.At}, append(roots.args(), b.Replay.Most)...)...)
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err == nil && n < int64(roots.rows) {
		err = ErrRuleSpent
	}
	return err
}

// errOneRule: what shares a commit is of one version of one rule.
var errOneRule = errors.New("postgres: changes by several rules were to share a commit")

// Replayed tells how a rule has replayed a lineage.
type Replayed struct {
	Rule    string
	Replays int
	LastAt  time.Time
}

// ReplayedLine is the lineage of a run: its first run, and what rules did to it, the
// latest first.
type ReplayedLine struct {
	Root background.RunID
	By   []Replayed
}

const replayedSQL = `
WITH RECURSIVE up AS (
  SELECT r.id AS run, r.id, r.parent_id FROM recourse.runs r WHERE r.id = ANY($1::uuid[]) AND r.tenant = $2
  UNION ALL
  SELECT u.run, r.id, r.parent_id FROM up u JOIN recourse.runs r ON r.id = u.parent_id
)
SELECT u.run, u.id, coalesce(c.rule, ''), coalesce(c.replays, 0), c.last_at FROM up u LEFT JOIN recourse.rule_replays c ON c.root = u.id
WHERE u.parent_id IS NULL ORDER BY u.run, c.last_at DESC, c.rule`

// ReplayedLines reads the lineages of runs of a tenant.
func (j *Journal) ReplayedLines(ctx context.Context, tenant string, runs []background.RunID) (map[background.RunID]ReplayedLine, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	c := newColumns(1, len(runs))
	for _, id := range runs {
		c.id(id)
	}
	rows, err := j.reads.QueryContext(ctx, replayedSQL, append(c.args(), tenant)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	out := make(map[background.RunID]ReplayedLine, len(runs))
	for rows.Next() {
		var run, root uuid.UUID
		var by Replayed
		var last sql.NullTime
		if err := rows.Scan(&run, &root, &by.Rule, &by.Replays, &last); err != nil {
			return nil, unavailable(err)
		}
		line := out[background.RunID(run)]
		line.Root = background.RunID(root)
		if by.LastAt = last.Time.UTC(); last.Valid {
			line.By = append(line.By, by)
		}
		out[background.RunID(run)] = line
	}
	return out, maybeUnavailable(rows.Err())
}
