package background_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/backgroundtest"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	journal := backgroundtest.NewJournal(1)
	named := func(name string) background.Family {
		return &backgroundtest.Family{Journal: journal, FamilyName: name, AttemptLimit: time.Second}
	}
	redis := asynq.RedisClientOpt{Addr: "127.0.0.1:1"}
	for name, c := range map[string]struct {
		cfg  background.Config
		want string
	}{
		"no redis":  {background.Config{Store: journal, Families: []background.Family{named("a")}}, "needs Redis"},
		"no store":  {background.Config{Redis: redis, Families: []background.Family{named("a")}}, "needs Redis, Store"},
		"no family": {background.Config{Redis: redis, Store: journal}, "at least one family"},
		"one name":  {background.Config{Redis: redis, Store: journal, Families: []background.Family{named("a"), named("a")}}, "two families"},
		"no name":   {background.Config{Redis: redis, Store: journal, Families: []background.Family{named("")}}, "family name"},
		"braces":    {background.Config{Redis: redis, Store: journal, Families: []background.Family{named("a}{b")}}, "family name"},
		"a colon":   {background.Config{Redis: redis, Store: journal, Families: []background.Family{named("a:0")}}, "family name"},
		"no time limit": {background.Config{Redis: redis, Store: journal,
			Families: []background.Family{&backgroundtest.Family{FamilyName: "a"}}}, "no time limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := background.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestQueueIsAStableShardOfItsFamily(t *testing.T) {
	t.Parallel()
	m, err := background.New(background.Config{
		Redis: asynq.RedisClientOpt{Addr: "127.0.0.1:1"}, Store: backgroundtest.NewJournal(1), Shards: 4,
		Families: []background.Family{&backgroundtest.Family{FamilyName: "pay", AttemptLimit: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	// Runs store the name: it must never change for a key.
	for key, want := range map[string]string{"": "pay:1", "tx-1:release": "pay:0", "tx-2:release": "pay:1", "tx-3:refund": "pay:3"} {
		if got := m.Queue("pay", key); got != want {
			t.Errorf("%q is in queue %q, want %q", key, got, want)
		}
	}
}
