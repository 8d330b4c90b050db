// Package testkit gives tests real servers of their own: a database per test on a
// private Postgres, a Redis per test. A missing server fails the test, with the
// command that brings one; nothing is skipped.
//
// Used by tests only.
package testkit

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	_ "github.com/lib/pq" // the driver

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
	"github.com/recourse-dev/recourse/internal/postgres"
)

const cure = "run the tests as the README says: go run ./cmd/sandbox go test -timeout 30m ./..."

// server is the Postgres that the tests of this binary share: the sandbox's, or
// one of the binary's own.
var server = sync.OnceValues(func() (string, error) {
	if u := os.Getenv("RECOURSE_DATABASE_URL"); u != "" {
		return u, nil
	}
	s, err := localpg.Start(context.Background(), localpg.Options{})
	if err != nil {
		return "", err
	}
	own = s
	return s.URL("postgres"), nil
})

var own *localpg.Server

// Main runs a package's tests and stops what they started. Call it from TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if own != nil {
		if err := own.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			return max(code, 1)
		}
	}
	return code
}

// Database creates an empty database that lives as long as the test.
func Database(t testing.TB) string {
	t.Helper()
	base, err := server()
	if err != nil {
		t.Fatalf("testkit: no Postgres: %v; %s", err, cure)
	}
	name := "recourse_test_" + uuid.NewString()[:13]
	admin, err := sql.Open("postgres", base)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(`CREATE DATABASE "` + name + `"`); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(`DROP DATABASE "` + name + `" WITH (FORCE)`); err != nil {
			t.Errorf("testkit: %v", err)
		}
		if err := admin.Close(); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// Migrated creates a database with the current schema.
func Migrated(t testing.TB) string {
	t.Helper()
	u := Database(t)
	if _, _, err := postgres.Migrate(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	return u
}

// Redis starts a redis-server that lives as long as the test.
func Redis(t testing.TB) (*localredis.Server, asynq.RedisConnOpt) {
	t.Helper()
	s, err := localredis.Start(context.Background(), localredis.Options{})
	if err != nil {
		t.Fatalf("testkit: no Redis: %v; %s", err, cure)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	return s, asynq.RedisClientOpt{Addr: s.Addr()}
}
