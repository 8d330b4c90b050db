package search_test

import (
	"database/sql"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// A pooler with default settings refuses run-time settings in the startup packet.
func TestSettingsOfSearchesAreSetOnEachConnectionAndNeverSentBeforeIt(t *testing.T) {
	t.Parallel()
	p := &journaltest.Pooler{SessionMode: true}
	through := journaltest.PoolerTo(t, testkit.Migrated(t), p, 0)
	pools := openIndex(t, through, journaltest.Open(t, through)).Pools()
	before := p.Startups()
	for name, want := range map[string]map[string]string{
		"projection": {"idle_in_transaction_session_timeout": "5s", "idle_session_timeout": "0", "synchronous_commit": "off", "enable_hashjoin": "off"},
		"search":     {"enable_sort": "off", "max_parallel_workers_per_gather": "0", "plan_cache_mode": "force_custom_plan"},
	} {
		journaltest.CheckSettings(t, name, pools[name], want)
	}
	if p.Startups() == before || len(pools) != 2 {
		t.Errorf("%d pools, and no connection of theirs through the pooler", len(pools))
	}
}

func TestTheServerShowsWhatSearchConnectionsAreForUnlessTheURLNamesThem(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	journaltest.CheckPurposes(t, databaseURL, func(url string) map[string]*sql.DB {
		return openIndex(t, url, journaltest.Open(t, url)).Pools()
	})
}
