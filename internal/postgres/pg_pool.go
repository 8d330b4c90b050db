package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/pgurl"
)

// poolConfig configures a pool.
type poolConfig struct {
	purpose  string // shown in pg_stat_activity, unless the URL sets the application name
	maxConns int
	settings map[string]string // run-time settings of each session
	binary   bool              // accepts binaryColumns
	dialer   pq.Dialer         // nil: connections have no idle timeout
}

// openPool returns a pool for the database of a URL. It connects on first use.
func openPool(databaseURL string, cfg poolConfig) (*sql.DB, error) {
	dsn, err := pgurl.WithApplicationName(databaseURL, "recourse/"+cfg.purpose)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", pgurl.ErrUnreadable)
	}
	config.BinaryParameters = cfg.binary
	pgConnector, err := pq.NewConnectorConfig(config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", pgurl.ErrUnreadable)
	}
	if cfg.dialer != nil {
		pgConnector.Dialer(cfg.dialer)
	}
	db := sql.OpenDB(&connector{Connector: pgConnector, setSQL: setStatements(cfg.settings)})
	db.SetMaxOpenConns(cfg.maxConns)
	db.SetMaxIdleConns(cfg.maxConns)
	return db, nil
}

// connector sets the run-time settings of a session after it is connected. Connection
// poolers refuse them as startup parameters.
type connector struct {
	driver.Connector
	setSQL string // empty: nothing to set
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil || c.setSQL == "" {
		return conn, err
	}
	session, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("postgres: a %T can't set anything", conn), conn.Close())
	}
	if _, err := session.ExecContext(ctx, c.setSQL, nil); err != nil {
		_ = conn.Close() // it may be broken; the first error is returned
		return nil, err
	}
	return conn, nil
}

// setStatements returns the SQL that sets the settings.
func setStatements(settings map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&out, "SET %s = %s; ", pq.QuoteIdentifier(name), pq.QuoteLiteral(settings[name]))
	}
	return strings.TrimSuffix(out.String(), "; ")
}
