package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// breakerOfRunSQL is the target whose circuit breaker applies to a run r.
const breakerOfRunSQL = `coalesce((SELECT t.breaker FROM recourse.targets t WHERE t.family = r.family AND t.name = r.target), r.target)`

// ErrTargetsDiffer means that the circuit breaker of a target differs from the recorded
// one. The error says in one line which target, and what to do.
var ErrTargetsDiffer = errors.New("the circuit breakers of targets differ")

const (
	// targetDifferencesSQL lists the targets that are recorded with another breaker, or not
	// at all: with a process that calls each, and tenants whose breakers are not closed.
	targetDifferencesSQL = `SELECT u.name, u.breaker, coalesce(t.breaker, '') AS was,
	coalesce((SELECT min(s.worker) FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $4 AND u.name = ANY (s.targets)), '') AS caller,
	coalesce((SELECT min(CASE k.tenant WHEN '' THEN '` + AllTenants + `' ELSE k.tenant END) FROM recourse.circuit_breakers k WHERE k.family = $1 AND k.target = u.name AND k.state <> 'closed'), '') AS open,
	coalesce((SELECT min(CASE k.tenant WHEN '' THEN '` + AllTenants + `' ELSE k.tenant END) FROM recourse.circuit_breakers k WHERE k.family = $1 AND k.target = t.breaker AND k.target <> u.name AND k.state <> 'closed' AND k.by_hand), '') AS held
FROM unnest($2::text[], $3::text[]) AS u(name, breaker) LEFT JOIN recourse.targets t ON t.family = $1 AND t.name = u.name
WHERE t.breaker IS DISTINCT FROM u.breaker ORDER BY u.name`
	lockTargetsSQL   = `LOCK TABLE recourse.targets IN SHARE ROW EXCLUSIVE MODE`
	recordTargetsSQL = `INSERT INTO recourse.targets AS t (family, name, breaker) SELECT $1, u.name, u.breaker FROM unnest($2::text[], $3::text[]) AS u(name, breaker)
	ON CONFLICT (family, name) DO UPDATE SET breaker = excluded.breaker WHERE t.breaker <> excluded.breaker`
)

// targetDifference is a target whose recorded breaker differs from that of this process.
type targetDifference struct {
	Name     string `db:"name"`
	Breaker  string `db:"breaker"` // of this process
	Recorded string `db:"was"`     // as recorded; empty if it is not
	Caller   string `db:"caller"`  // a process that calls it; empty if none does
	Open     string `db:"open"`    // a tenant whose breaker of this target is not closed; empty if there is none
	Held     string `db:"held"`    // a tenant for which a person opened the recorded breaker, of another target; empty if there is none
}

// recordedBreaker returns the target whose breaker applied before.
func (o *targetDifference) recordedBreaker() string { return cmp.Or(o.Recorded, o.Name) }

// conflict returns why the recorded breaker may not be changed; nil if it may.
func (o *targetDifference) conflict() error {
	switch {
	case o.recordedBreaker() == o.Breaker:
		return nil
	case o.Caller != "":
		return fmt.Errorf("%w: %s calls %s with the circuit breaker of %s, and this process would use that of %s: configure the same targets, or stop the other process first", ErrTargetsDiffer, o.Caller, o.Name, o.recordedBreaker(), o.Breaker)
	case o.Open != "" && o.recordedBreaker() == o.Name:
		return fmt.Errorf("%w: that of %s is open for tenant %s, and would have no effect once %s uses that of %s: release it first", ErrTargetsDiffer, o.Name, o.Open, o.Name, o.Breaker)
	case o.Held != "":
		return fmt.Errorf("%w: that of %s was opened by hand for tenant %s and applies to %s, which would use that of %s: release it first", ErrTargetsDiffer, o.Recorded, o.Held, o.Name, o.Breaker)
	}
	return nil
}

func targetArgs(family string, breakers map[string]string, since time.Time) []any {
	names := slices.Sorted(maps.Keys(breakers))
	by := make([]string, len(names))
	for i, name := range names {
		by[i] = breakers[name]
	}
	return []any{family, pq.Array(names), pq.Array(by), since}
}

func selectTargetDifferences(ctx context.Context, q sqlx.QueryerContext, args []any) (out []targetDifference, err error) {
	return out, pg.Wrap(sqlx.SelectContext(ctx, q, &out, targetDifferencesSQL, args...))
}

// Targets keeps the names of configured targets and their circuit breakers.
type Targets struct {
	*shared
}

// Check returns an error that wraps ErrTargetsDiffer if the recorded breaker of a
// target differs from the given one. A target without a record uses its own breaker.
func (t *Targets) Check(ctx context.Context, family string, breakers map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	differences, err := selectTargetDifferences(ctx, t.readDB, targetArgs(family, breakers, time.Time{}))
	for _, o := range differences {
		if o.recordedBreaker() != o.Breaker {
			return fmt.Errorf("%w: %s uses that of %s now, and in this process that of %s: configure the same targets everywhere", ErrTargetsDiffer, o.Name, o.recordedBreaker(), o.Breaker)
		}
	}
	return err
}

// Record records the breaker of each given target of a family; other targets stay as
// they are. It changes nothing and returns an error that wraps ErrTargetsDiffer if the
// breaker of a target would change while
//   - a process with a heartbeat since a time calls the target, or
//   - the target used its own breaker, which is not closed, or
//   - it used another target's breaker, which a person opened.
func (t *Targets) Record(ctx context.Context, family string, breakers map[string]string, since time.Time) (err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	args := targetArgs(family, breakers, since)
	differences, err := selectTargetDifferences(ctx, t.readDB, args)
	if err != nil || len(differences) == 0 {
		return err
	}
	tx, err := t.readDB.BeginTxx(ctx, nil)
	if err != nil {
		return pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx.Tx)) }()
	if _, err := tx.ExecContext(ctx, lockTargetsSQL); err != nil {
		return pg.Wrap(err)
	}
	if differences, err = selectTargetDifferences(ctx, tx, args); err != nil {
		return err
	}
	for _, o := range differences {
		if err := o.conflict(); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, recordTargetsSQL, args[:3]...); err != nil {
		return pg.Wrap(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Targets)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Targets)
	return pg.Wrap(err)
}

// BreakerOf returns the target whose breaker applies to a target of a family, as
// recorded; empty if nothing is.
func (t *Targets) BreakerOf(ctx context.Context, family, target string) (breaker string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return breakerOf(ctx, t.readDB, family, target)
}

func breakerOf(ctx context.Context, q pg.RowQuerier, family, target string) (breaker string, err error) {
	err = q.QueryRowContext(ctx, `SELECT breaker FROM recourse.targets WHERE family = $1 AND name = $2`, family, target).Scan(&breaker)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return breaker, pg.Wrap(err)
}

// SettledBreakerOf is BreakerOf, but waits for a concurrent Record: the result
// was valid at some moment after the call.
func (t *Targets) SettledBreakerOf(ctx context.Context, family, target string) (breaker string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	tx, err := t.readDB.BeginTxx(ctx, nil)
	if err != nil {
		return "", pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx.Tx)) }()
	if _, err := tx.ExecContext(ctx, `LOCK TABLE recourse.targets IN ROW EXCLUSIVE MODE`); err != nil {
		return "", pg.Wrap(err)
	}
	return breakerOf(ctx, tx, family, target)
}

// Uncalled counts live runs and open dead letters of a family whose target no process
// calls.
type Uncalled struct {
	Target  string `db:"target" json:"target"`
	Runs    int64  `db:"runs" json:"runs"`
	Letters int64  `db:"letters" json:"dead_letters"`
}

const uncalledSQL = `SELECT r.target, count(*) FILTER (WHERE r.live) AS runs, count(*) FILTER (WHERE r.letter = 'open') AS letters
FROM recourse.runs r WHERE r.active AND r.family = $1
	AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $2 AND r.target = ANY (s.targets)) GROUP BY 1 ORDER BY 1`

// Uncalled lists the targets of a family's live runs and open dead letters that no process
// with a heartbeat since a time calls. It reads every one of these runs and letters.
func (m *LevelReader) Uncalled(ctx context.Context, family string, since time.Time) ([]Uncalled, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var out []Uncalled
	return out, pg.Wrap(m.readDB.SelectContext(ctx, &out, uncalledSQL, family, since))
}

// servedSQL reports whether a running process calls a target, or one has named it as the queue of remote workers.
const servedSQL = `SELECT EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $3 AND $2 = ANY (s.targets))
	OR starts_with($2, 'queue:') AND EXISTS (SELECT FROM recourse.targets t WHERE t.family = $1 AND t.name = $2)`

// Served reports whether a process with a heartbeat since a time calls a target, or a process has named it as a payment
// queue of remote workers.
func (t *Targets) Served(ctx context.Context, family, target string, since time.Time) (served bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return served, pg.Wrap(t.readDB.QueryRowContext(ctx, servedSQL, family, target, since).Scan(&served))
}
