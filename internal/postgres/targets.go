package postgres

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
)

// breakerOfRunSQL is the target whose circuit breaker a run r goes by.
const breakerOfRunSQL = `coalesce((SELECT t.breaker FROM recourse.targets t WHERE t.family = r.family AND t.name = r.target), r.target)`

// ErrTargetsDiffer means that a target would go, or goes, by the circuit breaker of another one than
// what is recorded says. The error says in one line which, and what to do.
var ErrTargetsDiffer = errors.New("the circuit breakers of targets differ")

const (
	// targetDifferencesSQL lists the targets that are recorded otherwise, or not at all: with who
	// calls them, and for whom their own circuit breakers are not closed.
	targetDifferencesSQL = `SELECT u.name, u.breaker, coalesce(t.breaker, '') AS was,
	coalesce((SELECT min(s.worker) FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $4 AND u.name = ANY (s.targets)), '') AS caller,
	coalesce((SELECT min(CASE k.tenant WHEN '' THEN '` + AllTenants + `' ELSE k.tenant END) FROM recourse.brakes k WHERE k.family = $1 AND k.target = u.name AND k.state <> 'closed'), '') AS open,
	coalesce((SELECT min(CASE k.tenant WHEN '' THEN '` + AllTenants + `' ELSE k.tenant END) FROM recourse.brakes k WHERE k.family = $1 AND k.target = t.breaker AND k.target <> u.name AND k.state <> 'closed' AND k.by_hand), '') AS held
FROM unnest($2::text[], $3::text[]) AS u(name, breaker) LEFT JOIN recourse.targets t ON t.family = $1 AND t.name = u.name
WHERE t.breaker IS DISTINCT FROM u.breaker ORDER BY u.name`
	lockTargetsSQL   = `LOCK TABLE recourse.targets IN SHARE ROW EXCLUSIVE MODE`
	recordTargetsSQL = `INSERT INTO recourse.targets AS t (family, name, breaker) SELECT $1, u.name, u.breaker FROM unnest($2::text[], $3::text[]) AS u(name, breaker)
	ON CONFLICT (family, name) DO UPDATE SET breaker = excluded.breaker WHERE t.breaker <> excluded.breaker`
)

// targetDifference is a target that is recorded otherwise than a process has it.
type targetDifference struct {
	Name     string `db:"name"`
	Breaker  string `db:"breaker"` // as the process has it
	Recorded string `db:"was"`     // as recorded; empty when it is not
	Caller   string `db:"caller"`  // a process that calls it; empty when none does
	Open     string `db:"open"`    // a tenant for whom its own circuit breaker is not closed; empty when there is none
	Held     string `db:"held"`    // a tenant for whom a person opened that of another target by which it went; empty when there is none
}

// recordedBreaker is by whose circuit breaker the target went before.
func (o *targetDifference) recordedBreaker() string { return cmp.Or(o.Recorded, o.Name) }

// conflict is why what is recorded of the target may not be changed; nil when it may.
func (o *targetDifference) conflict() error {
	switch {
	case o.recordedBreaker() == o.Breaker:
		return nil
	case o.Caller != "":
		return fmt.Errorf("%w: %s calls %s by the circuit breaker of %s, and this process would by that of %s: configure the same targets, or stop the other process first", ErrTargetsDiffer, o.Caller, o.Name, o.recordedBreaker(), o.Breaker)
	case o.Open != "" && o.recordedBreaker() == o.Name:
		return fmt.Errorf("%w: that of %s is open for tenant %s, and nobody would go by it when %s goes by that of %s: release it first", ErrTargetsDiffer, o.Name, o.Open, o.Name, o.Breaker)
	case o.Held != "":
		return fmt.Errorf("%w: that of %s was opened by hand for tenant %s, also for %s, which would go by that of %s: release it first", ErrTargetsDiffer, o.Recorded, o.Held, o.Name, o.Breaker)
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
	return out, unavailableOrNil(sqlx.SelectContext(ctx, q, &out, targetDifferencesSQL, args...))
}

// CheckTargets returns an error that wraps ErrTargetsDiffer when a target is recorded to go by another
// circuit breaker than the one given.
func (j *Journal) CheckTargets(ctx context.Context, family string, breakers map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	others, err := selectTargetDifferences(ctx, j.readDB, targetArgs(family, breakers, time.Time{}))
	for _, o := range others {
		if o.recordedBreaker() != o.Breaker {
			return fmt.Errorf("%w: %s goes by that of %s now, and in this process by that of %s: configure the same targets everywhere", ErrTargetsDiffer, o.Name, o.recordedBreaker(), o.Breaker)
		}
	}
	return err
}

// RecordTargets records by whose circuit breaker each target of a family goes. A target that is
// not named stays as it is. Nothing is changed, and the error wraps ErrTargetsDiffer, when a process
// of which a beat came since a time calls a target that would go by another circuit breaker
// then, when the circuit breaker that it leaves is its own and not closed, or when that is
// another target's and a person opened it.
func (j *Journal) RecordTargets(ctx context.Context, family string, breakers map[string]string, since time.Time) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	args := targetArgs(family, breakers, since)
	others, err := selectTargetDifferences(ctx, j.readDB, args)
	if err != nil || len(others) == 0 {
		return err
	}
	tx, err := j.readDB.BeginTxx(ctx, nil)
	if err != nil {
		return unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	if _, err := tx.ExecContext(ctx, lockTargetsSQL); err != nil {
		return unavailable(err)
	}
	if others, err = selectTargetDifferences(ctx, tx, args); err != nil {
		return err
	}
	for _, o := range others {
		if err := o.conflict(); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, recordTargetsSQL, args[:3]...); err != nil {
		return unavailable(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Targets)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Targets)
	return unavailableOrNil(err)
}

// BreakerTarget returns the target whose circuit breaker a target of a family goes by, as recorded:
// empty when nothing is.
func (j *Journal) BreakerTarget(ctx context.Context, family, target string) (breaker string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return breakerOf(ctx, j.readDB, family, target)
}

func breakerOf(ctx context.Context, q rowQuerier, family, target string) (breaker string, err error) {
	err = q.QueryRowContext(ctx, `SELECT breaker FROM recourse.targets WHERE family = $1 AND name = $2`, family, target).Scan(&breaker)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return breaker, unavailableOrNil(err)
}

// SettledBreakerOf is BreakerTarget, and waits for whoever is changing it: what it returns holds at a
// moment after the call.
func (j *Journal) SettledBreakerOf(ctx context.Context, family, target string) (breaker string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tx, err := j.readDB.BeginTxx(ctx, nil)
	if err != nil {
		return "", unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx.Tx)) }()
	if _, err := tx.ExecContext(ctx, `LOCK TABLE recourse.targets IN ROW EXCLUSIVE MODE`); err != nil {
		return "", unavailable(err)
	}
	return breakerOf(ctx, tx, family, target)
}

// Uncalled is how many live runs and open dead letters of a family name a target that no
// process calls.
type Uncalled struct {
	Target  string `db:"target" json:"target"`
	Runs    int64  `db:"runs" json:"runs"`
	Letters int64  `db:"letters" json:"dead_letters"`
}

const uncalledSQL = `SELECT r.target, count(*) FILTER (WHERE r.live) AS runs, count(*) FILTER (WHERE r.letter = 'open') AS letters
FROM recourse.runs r WHERE r.holds AND r.family = $1
	AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $2 AND r.target = ANY (s.targets)) GROUP BY 1 ORDER BY 1`

// Uncalled lists the targets of a family's live runs and open dead letters that no process
// calls of which a beat came since a time. It reads every one of them.
func (j *Journal) Uncalled(ctx context.Context, family string, since time.Time) ([]Uncalled, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var out []Uncalled
	return out, unavailableOrNil(j.readDB.SelectContext(ctx, &out, uncalledSQL, family, since))
}
