// Package testkit gives tests real servers: a database for each test on a private Postgres,
// and a Redis for each test that starts one. If a server program is missing the test fails and
// names the command that installs it; no test is skipped.
//
// The product connects like a process in production: as a role that owns nothing. Migrated
// returns the URL of that role, Owner the URL of the owner, for migrations, tampering and
// checks past the product.
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
	"github.com/recourse-dev/recourse/internal/schema"
)

const setupHint = "run the tests as internal/README.md says: go run ./cmd/sandbox -durable=false go test -timeout 40m ./..."

// adminConns is how many databases are created and dropped at once.
const adminConns = 4

// server is the Postgres that the tests of this binary share: the sandbox's, or a private one
// of this binary.
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

// testServer is a Postgres with a database for each test.
type testServer struct {
	ownerURL string // URL of the owner
	app      *url.Userinfo
	admin    *sql.DB
	private  *localpg.Server // nil: the server is the sandbox's
	template string          // database with the current schema; made when it is first needed
}

var current *testServer

// template is the database that Migrated copies: copying is much faster than migrating.
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
	_, err = schema.Migration{DatabaseURL: u, AppRole: h.app.Username()}.Run(context.Background())
	return name, err
})

// create creates a database: an empty one, or a copy of source, to which nobody may be connected.
func (h *testServer) create(name, source string) error {
	statement := `CREATE DATABASE "` + name + `"`
	if source != "" {
		var version int
		if err := h.admin.QueryRow(`SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
			return err
		}
		statement += ` TEMPLATE "` + source + `"`
		if version >= 150000 {
			statement += ` STRATEGY file_copy` // the only strategy before; it writes no log
		}
	}
	_, err := h.admin.Exec(statement)
	return err
}

func (h *testServer) drop(name string) error {
	_, err := h.admin.Exec(`DROP DATABASE "` + name + `" WITH (FORCE)`)
	return err
}

// url returns the owner's URL of a database of this server.
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

// Main runs a package's tests and stops the servers that they started. Call it from TestMain.
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

// Database creates an empty database for the duration of the test. It returns the owner's URL.
func Database(t testing.TB) string {
	t.Helper()
	return database(t, "")
}

// Migrated creates a database with the current schema. It returns the URL of the role that
// processes connect as.
func Migrated(t testing.TB) string {
	t.Helper()
	source, err := template()
	if err != nil {
		t.Fatalf("testkit: no Postgres with the schema: %v; %s", err, setupHint)
	}
	return As(t, database(t, source), current.app)
}

// Migrate migrates a database of this server to the current schema. It returns the URL of the
// role that processes connect as.
func Migrate(t testing.TB, owner string) string {
	t.Helper()
	h, err := server()
	if err != nil {
		t.Fatalf("testkit: no Postgres: %v; %s", err, setupHint)
	}
	if _, err := (schema.Migration{DatabaseURL: owner, AppRole: h.app.Username()}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return As(t, owner, h.app)
}

// Owner returns the owner's URL for a URL of Migrated. It returns any other URL unchanged.
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

// OpenAsOwner opens a database as its owner for the duration of the test.
func OpenAsOwner(t testing.TB, databaseURL string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", Owner(t, databaseURL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
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

// database creates a copy of source, or an empty database.
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

// Redis starts a redis-server for the duration of the test.
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
