package app_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// startedOn starts a Main on a database and closes it again.
func startedOn(t *testing.T, url string, redis asynq.RedisConnOpt, escrow string) error {
	t.Helper()
	m := &app.Main{Log: zap.NewNop(), Options: app.Options{DatabaseURL: url, RedisURL: "redis://" + addr(redis), TimeLimit: time.Second, EscrowURL: escrow, Embedded: escrow == "", KeyLifetime: app.Lifetime{Given: true}}}
	if err := m.Parse(func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	err := m.Start(t.Context())
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	return err
}

// The escrow service for demonstrations never executes on a database with real money, and no other
// escrow service executes on a demonstration's database.
func TestADatabaseIsForDemonstrationsOrForMoneyForEver(t *testing.T) {
	t.Parallel()
	const money = "http://127.0.0.1:1"
	_, redis := testkit.Redis(t)
	refused := func(what string, err error, word string) {
		t.Helper()
		if !errors.Is(err, app.ErrOptions) || !errors.Is(err, postadjudication.ErrDemonstration) || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}

	empty := testkit.Migrated(t)
	for range 2 {
		if err := startedOn(t, empty, redis, ""); err != nil {
			t.Fatal(err)
		}
		refused("another escrow service on a demonstration's database", startedOn(t, empty, redis, money), "is for demonstrations")
	}

	_, redis = testkit.Redis(t)
	used := testkit.Migrated(t)
	if err := startedOn(t, used, redis, money); err != nil {
		t.Fatal(err)
	}
	refused("a demonstration where money was to be moved", startedOn(t, used, redis, ""), "not empty")
	if err := startedOn(t, used, redis, money); err != nil {
		t.Errorf("afterwards: %v", err)
	}

	_, redis = testkit.Redis(t)
	accepted := testkit.Migrated(t)
	s, err := postadjudication.Open(t.Context(), postadjudication.Config{DatabaseURL: accepted})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	refused("a demonstration where something was accepted", startedOn(t, accepted, redis, ""), "not empty")
	if err := startedOn(t, accepted, redis, money); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
