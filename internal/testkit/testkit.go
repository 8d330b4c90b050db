// Package testkit gives tests real servers of their own: a database per test on a
// private Postgres, a Redis per test. A missing server fails the test, with the
// command that brings one; nothing is skipped.
//
// The product connects as a process in production does, as a role that owns nothing:
// Migrated gives its URL. What migrates, tampers or looks behind the product's back asks
// for that of the owner, by Owner.
//
// Used by tests only.
package testkit

import (
	"context"
	"database/sql"
	"errors"
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

const setupHint = "run the tests as internal/README.md says: go run ./cmd/sandbox -durable=false go test -timeout 30m ./..."

// adminConns is how many databases are made and dropped at once.
const adminConns = 4

// server is the Postgres that the tests of this binary share: the sandbox's, or
// one of the binary's own.
var server = sync.OnceValues(func() (*testServer, error) {
	h := &testServer{ownerURL: os.Getenv("RECOURSE_OWNER_DATABASE_URL")}
	app := os.Getenv("RECOURSE_DATABASE_URL")
	if h.ownerURL == "" || app == "" {
		s, err := localpg.Start(context.Background(), localpg.Options{})
		if err != nil {
			return nil, err
		}
		h.private, h.ownerURL, app = s, s.URL("postgres"), s.AppURL("postgres")
	}
	current = h
	u, err := url.Parse(app)
	if err != nil {
		return nil, err
	}
	h.app = u.User
	if h.admin, err = sql.Open("postgres", h.ownerURL); err != nil {
		return nil, err
	}
	h.admin.SetMaxOpenConns(adminConns)
	h.admin.SetMaxIdleConns(adminConns)
	return h, nil
})

// testServer is a Postgres on which each test has a database.
type testServer struct {
	ownerURL string // URL of the owner
	app      *url.Userinfo
	admin    *sql.DB
	private  *localpg.Server // nil: the sandbox's
	template string          // database with the current schema; made when it is first needed
}

var current *testServer

// template is the database that Migrated copies: a copy costs a fraction of the migrations.
var template = sync.OnceValues(func() (string, error) {
	h, err := server()
	if err != nil {
		return "", err
	}
	name := "recourse_template_" + uuid.NewString()[:13]
	if err := h.create(name, ""); err != nil {
		return "", err
	}
	h.template = name
	u, err := h.url(name)
	if err != nil {
		return "", err
	}
	_, err = postgres.Migration{DatabaseURL: u, AppRole: h.app.Username()}.Run(context.Background())
	return name, err
})

// create makes a database: an empty one, or a copy of another that nobody is connected to.
func (h *testServer) create(name, source string) error {
	statement := `CREATE DATABASE "` + name + `"`
	if source != "" {
		var version int
		if err := h.admin.QueryRow(`SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
			return err
		}
		statement += ` TEMPLATE "` + source + `"`
		if version >= 150000 {
			statement += ` STRATEGY file_copy` // the only way before; it writes no log
		}
	}
	_, err := h.admin.Exec(statement)
	return err
}

func (h *testServer) drop(name string) error {
	_, err := h.admin.Exec(`DROP DATABASE "` + name + `" WITH (FORCE)`)
	return err
}

// url of a database of this server, for the owner.
func (h *testServer) url(name string) (string, error) {
	u, err := url.Parse(h.ownerURL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func (h *testServer) stop() (err error) {
	if h.template != "" {
		err = h.drop(h.template)
	}
	if h.admin != nil {
		err = errors.Join(err, h.admin.Close())
	}
	if h.private != nil {
		err = errors.Join(err, h.private.Stop())
	}
	return err
}

// Main runs a package's tests and stops what they started. Call it from TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if current != nil {
		if err := current.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			return max(code, 1)
		}
	}
	return code
}

// Database creates an empty database that lives as long as the test. The URL is its owner's.
func Database(t testing.TB) string {
	t.Helper()
	return database(t, "")
}

// Migrated creates a database with the current schema. The URL is that of the role that
// processes connect as.
func Migrated(t testing.TB) string {
	t.Helper()
	source, err := template()
	if err != nil {
		t.Fatalf("testkit: no Postgres with the schema: %v; %s", err, setupHint)
	}
	return As(t, database(t, source), current.app)
}

// Migrate brings a database of this server up to the current schema. It returns the URL for
// the role that processes connect as.
func Migrate(t testing.TB, owner string) string {
	t.Helper()
	h, err := server()
	if err != nil {
		t.Fatalf("testkit: no Postgres: %v; %s", err, setupHint)
	}
	if _, err := (postgres.Migration{DatabaseURL: owner, AppRole: h.app.Username()}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return As(t, owner, h.app)
}

// Owner returns the URL that Migrated gave, as the owner's. Any other one stays as it is.
func Owner(t testing.TB, databaseURL string) string {
	t.Helper()
	h, err := server()
	if err != nil {
		t.Fatalf("testkit: no Postgres: %v; %s", err, setupHint)
	}
	u, errURL := url.Parse(databaseURL)
	base, errBase := url.Parse(h.ownerURL)
	if err := errors.Join(errURL, errBase); err != nil {
		t.Fatal(err)
	}
	if u.Host != base.Host || u.User.String() != h.app.String() {
		return databaseURL
	}
	return As(t, databaseURL, base.User)
}

// As returns the URL for another role.
func As(t testing.TB, databaseURL string, user *url.Userinfo) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = user
	return u.String()
}

// database creates a copy of another, or an empty one.
func database(t testing.TB, source string) string {
	t.Helper()
	h, err := server()
	if err != nil {
		t.Fatalf("testkit: no Postgres: %v; %s", err, setupHint)
	}
	name := "recourse_test_" + uuid.NewString()[:13]
	if err := h.create(name, source); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if err := h.drop(name); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	u, err := h.url(name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Redis starts a redis-server that lives as long as the test.
func Redis(t testing.TB) (*localredis.Server, asynq.RedisConnOpt) {
	t.Helper()
	s, err := localredis.Start(context.Background(), localredis.Options{})
	if err != nil {
		t.Fatalf("testkit: no Redis: %v; %s", err, setupHint)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	return s, asynq.RedisClientOpt{Addr: s.Addr(), Password: s.Password()}
}
