package journaltest

import (
	"database/sql"
	"net/url"
	"testing"
)

// CheckSettings checks run-time settings on each connection of a pool: on those that are open, and
// on others.
func CheckSettings(t testing.TB, name string, pool *sql.DB, want map[string]string) {
	t.Helper()
	for range 2 {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for setting, value := range want {
			var is string
			if err := conn.QueryRowContext(t.Context(), `SELECT current_setting($1)`, setting).Scan(&is); err != nil || is != value {
				t.Errorf("%s: %s is %q, want %q, %v", name, setting, is, value, err)
			}
		}
		if pool.Stats().MaxOpenConnections == 1 {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		defer conn.Close()
	}
}

// CheckPurposes checks that the server shows what the connections of pools are for, by the keys of
// the pools, unless the URL has an application name.
func CheckPurposes(t testing.TB, databaseURL string, pools func(databaseURL string) map[string]*sql.DB) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", "till 7")
	u.RawQuery = q.Encode()
	own, named := pools(databaseURL), pools(u.String())
	for purpose := range own {
		for want, pool := range map[string]*sql.DB{"recourse/" + purpose: own[purpose], "till 7": named[purpose]} {
			var is string
			if err := pool.QueryRowContext(t.Context(), `SELECT current_setting('application_name')`).Scan(&is); err != nil || is != want {
				t.Errorf("%q, want %q, %v", is, want, err)
			}
		}
	}
	if len(own) == 0 {
		t.Error("no pools")
	}
}
