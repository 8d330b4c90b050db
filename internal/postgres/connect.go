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

// connections says of what kind a pool is.
type connections struct {
	purpose  string // as pg_stat_activity shows it, unless the URL names the application
	most     int
	settings map[string]string // run-time settings of each session
	binary   bool              // takes binaryColumns
	dialer   pq.Dialer         // nil: connections wait for an answer for ever
}

// pool opens connections to the database of a URL. They are made when they are needed.
func pool(databaseURL string, of connections) (*sql.DB, error) {
	dsn, err := pgurl.Named(databaseURL, "recourse/"+of.purpose)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", pgurl.ErrUnreadable)
	}
	config.BinaryParameters = of.binary
	made, err := pq.NewConnectorConfig(config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", pgurl.ErrUnreadable)
	}
	if of.dialer != nil {
		made.Dialer(of.dialer)
	}
	db := sql.OpenDB(&connector{Connector: made, set: setting(of.settings)})
	db.SetMaxOpenConns(of.most)
	db.SetMaxIdleConns(of.most)
	return db, nil
}

// connector sets the run-time settings of a session once it is connected. Sent as startup
// parameters, connection poolers refuse them.
type connector struct {
	driver.Connector
	set string // empty: there is nothing to set
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil || c.set == "" {
		return conn, err
	}
	session, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("postgres: a %T can't set anything", conn), conn.Close())
	}
	if _, err := session.ExecContext(ctx, c.set, nil); err != nil {
		_ = conn.Close() // it may be broken; why is told
		return nil, err
	}
	return conn, nil
}

// setting is the SQL that sets what is given.
func setting(to map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(to)) {
		fmt.Fprintf(&out, "SET %s = %s; ", pq.QuoteIdentifier(name), pq.QuoteLiteral(to[name]))
	}
	return strings.TrimSuffix(out.String(), "; ")
}
