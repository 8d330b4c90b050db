package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// A pooler with default settings refuses run-time settings in the startup packet.
func TestSettingsAreSetOnEachConnectionAndNeverSentBeforeIt(t *testing.T) {
	t.Parallel()
	p := &journaltest.Pooler{SessionMode: true}
	j := journaltest.Open(t, journaltest.PoolerTo(t, testkit.Migrated(t), p, 0))
	for name, pool := range j.Pools() {
		var want map[string]string
		switch name {
		case "batches", "waiting submissions", "waiting transitions", "transactions":
			want = map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off", "jit": "off"}
			if name != "batches" {
				want["lock_timeout"] = "2s"
			}
		case "sequencer", "webhooks":
			want = map[string]string{"idle_session_timeout": "5s", "jit": "off", "enable_seqscan": "off", "enable_mergejoin": "on"}
		case "queries", "heartbeat":
			want = map[string]string{"jit": "on", "enable_seqscan": "on"}
		default:
			t.Errorf("unknown pool: %s", name)
		}
		journaltest.CheckSettings(t, name, pool, want)
	}
	if p.Startups() == 0 {
		t.Error("no connection through the pooler")
	}
}

func TestTheServerShowsWhatConnectionsAreForUnlessTheURLNamesThem(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	journaltest.CheckPurposes(t, databaseURL, func(url string) map[string]*sql.DB { return journaltest.Open(t, url).Pools() })
}

// No default of the database or of the role makes a commit less durable than was promised, or changes what values and
// transactions mean. A commit that also waits for standbys stays as it is.
func TestNoDefaultWeakensASession(t *testing.T) {
	t.Parallel()
	for weak, commits := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_write": "remote_write", "remote_apply": "remote_apply"} {
		for _, of := range []string{`DATABASE %[1]s`, `ROLE %[2]s IN DATABASE %[1]s`} {
			databaseURL := testkit.Migrated(t)
			db := testkit.OpenAsOwner(t, databaseURL)
			u, err := url.Parse(databaseURL)
			if err != nil {
				t.Fatal(err)
			}
			of = fmt.Sprintf(of, pq.QuoteIdentifier(u.Path[1:]), pq.QuoteIdentifier(u.User.Username()))
			for setting, value := range map[string]string{"synchronous_commit": weak, "array_nulls": "off", "standard_conforming_strings": "off", "default_transaction_isolation": "serializable"} {
				if _, err := db.Exec(`ALTER ` + of + ` SET ` + setting + ` = '` + value + `'`); err != nil {
					t.Fatal(err)
				}
			}
			for name, pool := range journaltest.Open(t, databaseURL).Pools() {
				journaltest.CheckSettings(t, of+", "+name, pool, map[string]string{
					"synchronous_commit": commits, "array_nulls": "on", "standard_conforming_strings": "on", "transaction_isolation": "read committed",
				})
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
		through := journaltest.PoolerTo(t, databaseURL, &journaltest.Pooler{Rotates: tc.rotates}, tc.sessions)
		j, err := journal.Open(context.Background(), through)
		if err == nil {
			j.Close()
		}
		if !errors.Is(err, journal.ErrUnsuitable) || !strings.Contains(err.Error(), "transaction mode") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
