package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A pooler with default settings refuses run-time settings in the startup packet.
func TestSettingsAreSetOnEachConnectionAndNeverSentBeforeIt(t *testing.T) {
	t.Parallel()
	p := &pooler{sessionMode: true}
	j := open(t, poolerTo(t, testkit.Migrated(t), p, 0))
	for name, pool := range j.Pools() {
		var want map[string]string
		switch name {
		case "batches", "waiting submissions", "waiting transitions", "transactions":
			want = map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off", "jit": "off"}
			if name != "batches" {
				want["lock_timeout"] = "2s"
			}
		case "sequencer":
			want = map[string]string{"idle_session_timeout": "5s", "jit": "off", "enable_seqscan": "off", "enable_mergejoin": "on"}
		case "projection":
			want = map[string]string{"idle_in_transaction_session_timeout": "5s", "idle_session_timeout": "0", "synchronous_commit": "off", "enable_hashjoin": "off"}
		case "search":
			want = map[string]string{"enable_sort": "off", "max_parallel_workers_per_gather": "0", "plan_cache_mode": "force_custom_plan"}
		case "queries", "heartbeat":
			want = map[string]string{"jit": "on", "enable_seqscan": "on"}
		default:
			t.Errorf("unknown pool: %s", name)
		}
		// Use more connections than are open: new connections have the settings as well.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.startup) == 0 {
		t.Error("no connection through the pooler")
	}
}

func TestTheServerShowsWhatConnectionsAreForUnlessTheURLNamesThem(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", "till 7")
	u.RawQuery = q.Encode()
	own, named := open(t, databaseURL).Pools(), open(t, u.String()).Pools()
	for purpose := range own {
		for want, pool := range map[string]*sql.DB{"recourse/" + purpose: own[purpose], "till 7": named[purpose]} {
			var is string
			if err := pool.QueryRowContext(t.Context(), `SELECT current_setting('application_name')`).Scan(&is); err != nil || is != want {
				t.Errorf("%q, want %q, %v", is, want, err)
			}
		}
	}
}

// With any order of lending sessions, and any number of them.
func TestAPoolerInTransactionModeIsRefused(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	for name, tc := range map[string]struct {
		rotates  bool
		sessions int
	}{
		"one session": {false, 1}, "the last used": {false, 4}, "in turn, two": {true, 2}, "in turn, three": {true, 3}, "in turn, many": {true, 8}, "none idle": {true, 0},
	} {
		through := poolerTo(t, databaseURL, &pooler{rotates: tc.rotates}, tc.sessions)
		j, err := postgres.Open(context.Background(), through)
		if err == nil {
			j.Close()
		}
		if !errors.Is(err, postgres.ErrUnsuitable) || !strings.Contains(err.Error(), "transaction mode") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
