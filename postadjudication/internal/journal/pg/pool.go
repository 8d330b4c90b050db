package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/pgurl"
)

// StatementTimeout bounds a statement, or a transaction of several. After it the connection is closed, and the
// outcome is unknown until it is read.
const StatementTimeout = 15 * time.Second

// PlannerSettings forces the journal's own statements to indexed nested loops: on tables
// that are new and not yet analysed the planner would choose sequential scans, and keep
// them.
var PlannerSettings = map[string]string{
	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off", "jit": "off",
}

// sessionSQL gives each session what the journal's promises and statements need, whatever the defaults of the server, the
// database, the role or the URL are: a commit that was answered survives a crash of the server, and values and
// transactions mean the same everywhere. A synchronous_commit that also waits for a standby stays.
const sessionSQL = `SELECT set_config('synchronous_commit', 'on', false) WHERE ` + WeakCommits + `; ` +
	`SET array_nulls = on; SET standard_conforming_strings = on; SET default_transaction_isolation = 'read committed'`

// WeakCommits is true in SQL where a commit may be answered that a crash of the server, or of its standby, loses.
const WeakCommits = `current_setting('synchronous_commit') IN ('off', 'local')`

// PoolConfig configures a pool.
type PoolConfig struct {
	Purpose  string // shown in pg_stat_activity, unless the URL sets the application name
	MaxConns int
	Settings map[string]string // further run-time settings of each session
	Binary   bool              // accepts BinaryColumns, and sends a statement that is not prepared in one round trip
	Dialer   pq.Dialer         // nil: connections have no idle timeout
}

// OpenPool returns a pool for the database of a URL. It connects on first use.
func OpenPool(databaseURL string, cfg PoolConfig) (*sql.DB, error) {
	dsn, err := pgurl.WithApplicationName(databaseURL, "recourse/"+cfg.Purpose)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", pgurl.ErrUnreadable)
	}
	config.BinaryParameters = cfg.Binary
	pgConnector, err := pq.NewConnectorConfig(config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", pgurl.ErrUnreadable)
	}
	if cfg.Dialer != nil {
		pgConnector.Dialer(cfg.Dialer)
	}
	db := sql.OpenDB(&connector{Connector: pgConnector, setSQL: setStatements(cfg.Settings)})
	db.SetMaxOpenConns(cfg.MaxConns)
	db.SetMaxIdleConns(cfg.MaxConns)
	return db, nil
}

// connector sets the run-time settings of a session after it is connected. Connection
// poolers refuse them as startup parameters.
type connector struct {
	driver.Connector
	setSQL string
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	session, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a %T can't set anything", conn), conn.Close())
	}
	if _, err := session.ExecContext(ctx, c.setSQL, nil); err != nil {
		_ = conn.Close() // it may be broken; the first error is returned
		return nil, err
	}
	return conn, nil
}

// setStatements returns the SQL that sets up a session with the settings.
func setStatements(settings map[string]string) string {
	var out strings.Builder
	out.WriteString(sessionSQL)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&out, "; SET %s = %s", pq.QuoteIdentifier(name), pq.QuoteLiteral(settings[name]))
	}
	return out.String()
}

// Querier is implemented by *sql.DB, *sql.Conn and *sql.Tx, and by Statement for one statement.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// RowQuerier is a pool, a connection or a transaction.
type RowQuerier interface {
	Querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Execer is a pool, a connection or a transaction, for statements that return no rows.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec executes a statement between its two failpoints. It is for statements
// that change something other than a case.
func Exec(ctx context.Context, db Execer, point, query string, args ...any) (sql.Result, error) {
	failpoint.Hit(failpoint.JournalBefore, point)
	res, err := db.ExecContext(ctx, query, args...)
	failpoint.Hit(failpoint.JournalAfter, point)
	return res, err
}

// QueryAll returns all rows of a query, as structs with a db tag for each column.
func QueryAll[T any](ctx context.Context, q Querier, query string, args ...any) (found []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if err := sqlx.StructScan(rows, &found); err != nil {
		return nil, err
	}
	return found, rows.Err()
}

// Rollback rolls a transaction back unless it has ended.
func Rollback(tx *sql.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// RowsAffected returns how many rows a statement changed.
func RowsAffected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// NonNil keeps an empty list from becoming NULL.
func NonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// UTCOrZero returns a time in UTC; NULL is the zero time.
func UTCOrZero(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}
