package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/schema/migrations"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

const (
	// migratedFrom is the version of the schema before there were jobs.
	migratedFrom = 100
	// executedBefore is how many of the tasks are executed, so that their chains verify, at most. The other
	// runs are made by SQL, as the workload letters makes them.
	executedBefore = 2000
	// executedTenant has the tasks that are executed.
	executedTenant = "executed"
	lockPoll       = 2 * time.Millisecond
)

// migrate measures the migration of a database with as many runs as there are tasks. What is executed is
// executed in the database of the job, and copied into one of the older version.
func (j job) migrate(ctx context.Context) (m metrics, err error) {
	executed := min(executedBefore, max(1, j.Tasks/2))
	if err := j.executeHalf(ctx, executed); err != nil {
		return nil, err
	}
	old, drop, err := j.secondDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := migrateTo(ctx, old.OwnerURL, migratedFrom); err != nil {
		return nil, err
	}
	if err := copyTables(ctx, j.OwnerURL, old.OwnerURL); err != nil {
		return nil, err
	}
	if err := makeLetters(ctx, old.OwnerURL, j.Tasks-executed); err != nil {
		return nil, err
	}
	for _, q := range []string{`VACUUM ANALYZE`, `CHECKPOINT`} {
		if err := execute(ctx, old.OwnerURL, q); err != nil {
			return nil, err
		}
	}
	m = metrics{}
	if err := old.measureMigration(ctx, m); err != nil {
		return nil, err
	}
	return m, old.verifyMigrated(ctx, executed)
}

// executeHalf executes tasks, of which every second one dies.
func (j job) executeHalf(ctx context.Context, tasks int) error {
	j.Tasks = tasks
	return j.endAll(ctx, halfExecutor{}, func(s *postadjudication.Service, r *record) system { return &tenantSystem{recourseSystem{s, r}} })
}

// tenantSystem submits as executedTenant.
type tenantSystem struct{ recourseSystem }

func (p *tenantSystem) submit(ctx context.Context, i int) error {
	return p.submitAs(ctx, executedTenant, i)
}

// halfExecutor pays even amounts, and refuses the others.
type halfExecutor struct{ payingExecutor }

func (h halfExecutor) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	if c.Amount.Minor%2 == 1 {
		return refusingExecutor{}.Execute(ctx, c)
	}
	return h.payingExecutor.Execute(ctx, c)
}

// migrateTo makes the schema of an older version in an empty database.
func migrateTo(ctx context.Context, ownerURL string, version int64) (err error) {
	db, err := sql.Open("postgres", ownerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA recourse`); err != nil {
		return err
	}
	store, err := database.NewStore(goose.DialectPostgres, stored.VersionTable)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider("", db, migrations.Files, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}

// copiedTables have what was executed. The list of dead letters follows from them.
var copiedTables = []string{"escrows", "escrow_deltas", "cases", "operations", "runs", "receipts", "event_log", "annotations", "operation_logs"}

// copyTables copies the rows of tables into a database of an older version, without the columns that it does
// not have.
func copyTables(ctx context.Context, from, to string) (err error) {
	source, err := pgx.Connect(ctx, from)
	if err != nil {
		return err
	}
	target, err := pgx.Connect(ctx, to)
	if err != nil {
		return errors.Join(err, source.Close(ctx))
	}
	defer func() { err = errors.Join(err, source.Close(ctx), target.Close(ctx)) }()
	for _, table := range copiedTables {
		var columns string
		err := target.QueryRow(ctx, `SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'recourse' AND table_name = $1 AND is_generated = 'NEVER'`, table).Scan(&columns)
		if err != nil {
			return err
		}
		read, write := io.Pipe()
		err = together(
			func() error {
				_, err := source.PgConn().CopyTo(ctx, write, `COPY (SELECT `+columns+` FROM recourse.`+table+`) TO STDOUT`)
				return errors.Join(err, write.CloseWithError(err))
			},
			func() error {
				_, err := target.PgConn().CopyFrom(ctx, read, `COPY recourse.`+table+` (`+columns+`) FROM STDIN`)
				return errors.Join(err, read.CloseWithError(err))
			},
		)
		if err != nil {
			return fmt.Errorf("copying %s: %w", table, err)
		}
	}
	_, err = target.Exec(ctx, `SELECT setval(pg_get_serial_sequence('recourse.escrows', 'id'), (SELECT max(id) FROM recourse.escrows))`)
	return err
}

// measureMigration migrates, and looks on: how long others may not read the runs, and whether their table
// was written anew.
func (j job) measureMigration(ctx context.Context, m metrics) (err error) {
	db, err := sql.Open("postgres", j.OwnerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	const fileSQL = `SELECT oid, relfilenode FROM pg_class WHERE oid = 'recourse.runs'::regclass`
	var runs, before, after uint32
	if err := db.QueryRowContext(ctx, fileSQL).Scan(&runs, &before); err != nil {
		return err
	}
	migrating, stop := context.WithCancel(ctx)
	defer stop()
	err = together(
		func() error {
			defer stop()
			began := time.Now()
			_, err := postadjudication.Migration{DatabaseURL: j.OwnerURL, AppRole: localpg.AppRole}.Run(ctx)
			m[migratedSeconds] = time.Since(began).Seconds()
			return err
		},
		func() error {
			var held time.Duration
			var first time.Time // zero: it is not locked
			for sleep(migrating, lockPoll) == nil {
				var locked bool
				const askSQL = `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1 AND mode = 'AccessExclusiveLock' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`
				if err := db.QueryRowContext(ctx, askSQL, runs).Scan(&locked); err != nil {
					return err
				}
				switch now := time.Now(); {
				case !locked:
					first = time.Time{}
				case first.IsZero():
					first = now
				default:
					held = max(held, now.Sub(first))
				}
			}
			m[exclusiveSeconds] = held.Seconds()
			return nil
		},
		func() error {
			var longest time.Duration
			for sleep(migrating, lockPoll) == nil {
				began := time.Now()
				if _, err := db.ExecContext(ctx, `SELECT FROM recourse.runs LIMIT 1`); err != nil {
					return err
				}
				longest = max(longest, time.Since(began))
			}
			m[blockedSeconds] = longest.Seconds()
			return nil
		},
	)
	if err := errors.Join(err, db.QueryRowContext(ctx, fileSQL).Scan(&runs, &after)); err != nil {
		return err
	}
	if before != after {
		m[rewritten] = 1
	}
	return nil
}

// verifyMigrated checks that no run is missing, that all dead letters can be listed, and that all that was
// executed is audited without a break.
func (j job) verifyMigrated(ctx context.Context, executed int) (err error) {
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return err
	}
	s, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: j.DatabaseURL, Redis: redis})
	if err != nil {
		return err
	}
	reader, err := audit.Open(ctx, j.DatabaseURL)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	db, err := sql.Open("postgres", j.OwnerURL)
	if err != nil {
		return errors.Join(err, s.Close(), reader.Close())
	}
	defer func() { err = errors.Join(err, s.Close(), reader.Close(), db.Close()) }()
	dead, err := s.As(executedTenant, "").DeadLetters.Count(ctx, deadletter.Filter{})
	if err != nil {
		return err
	}
	var runs int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil {
		return err
	}
	cases, err := auditCases(ctx, db, reader, executedTenant, executed)
	return errors.Join(err, equal("runs", runs, j.Tasks), equal("audited cases", cases, executed), equal("dead letters", int(dead.Total), (executed+1)/2), verifyLetters(ctx, db))
}
