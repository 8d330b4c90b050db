//go:build unix

package localpg

import (
	"context"
	"database/sql"
	"net/url"
	"time"
)

// clockSQL makes the clock that SetClock sets. It has a function of the name of the server's.
const clockSQL = `CREATE SCHEMA set_clock;
CREATE TABLE set_clock.ahead (by interval NOT NULL);
INSERT INTO set_clock.ahead VALUES ('0');
CREATE FUNCTION set_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() + by FROM set_clock.ahead';
GRANT USAGE ON SCHEMA set_clock TO PUBLIC;
GRANT SELECT ON set_clock.ahead TO PUBLIC`

// MakeClock makes a clock in a database whose owner db connects as. It shows the server's time until SetClock sets it, and
// sessions of WithClock read it in place of the server's.
func MakeClock(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, clockSQL)
	return err
}

// SetClock sets how far the clock of a database is ahead of the server's.
func SetClock(ctx context.Context, db *sql.DB, ahead time.Duration) error {
	_, err := db.ExecContext(ctx, `UPDATE set_clock.ahead SET by = make_interval(secs => $1)`, ahead.Seconds())
	return err
}

// WithClock returns the URL of a database for sessions that read the clock of MakeClock.
func WithClock(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("search_path", "set_clock,pg_catalog")
	u.RawQuery = q.Encode()
	return u.String(), nil
}
