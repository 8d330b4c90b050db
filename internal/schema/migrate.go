package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/recourse-dev/recourse/internal/pgurl"
	"github.com/recourse-dev/recourse/internal/schema/migrations"
	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// ErrSchema means that the database's schema is not the one this program needs.
var ErrSchema = stored.ErrSchema

// ErrSubmitRole means that the role of a transaction may open cases, and change none.
var ErrSubmitRole = stored.ErrSubmitRole

// Migration brings the schema of a database up to this program's version.
type Migration struct {
	DatabaseURL string // role of the URL: owns the schema, or will
	AppRole     string // granted what processes need, now and by every later migration; empty: the stored one
	NoAppRole   bool   // revokes what was granted, and grants nothing any more
	SubmitRole  string // granted what SubmitTx needs of the role of the caller's transaction, now and by every later migration; empty: none is added
}

// MigrationResult is the outcome of a migration.
type MigrationResult struct {
	From, To int64  // versions
	AppRole  string // the app role; empty if there is none

	SubmitRoles []string // the roles that may submit, and nothing else
}

// Migrate runs a Migration with default settings.
func Migrate(ctx context.Context, databaseURL string) (from, to int64, err error) {
	done, err := Migration{DatabaseURL: databaseURL}.Run(ctx)
	return done.From, done.To, err
}

// Run brings the schema up to this program's version, one migration per transaction, under
// a lock that keeps other migrating processes out. On a current schema it restores
// what protects evidence, such as triggers that a restore left disabled, and completes the grants of the app role. Before
// anything is changed it returns:
//   - ErrSchema if the schema is newer than the program, or from before oldestVersion, or if the encoding of
//     the database is another than UTF8;
//   - ErrAppRole if the role can't be the app role, or if running processes would lose
//     privileges.
func (m Migration) Run(ctx context.Context) (done MigrationResult, err error) {
	db, err := open(m.DatabaseURL)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkServer(ctx, db); err != nil {
		return done, err
	}
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS recourse`); err != nil && sqlState(err) != "23505" {
		return done, unavailable(err)
	}
	p, err := newProvider(db)
	if err != nil {
		return done, err
	}
	done.From, done.To, err = p.GetVersions(ctx)
	if err != nil {
		return done, unavailable(err)
	}
	if err := stored.CheckVersion(done.From, done.To); err != nil {
		return done, err
	}
	if err := m.checkAppRole(ctx, db); err != nil {
		return done, err
	}
	if _, err := p.Up(ctx); err != nil {
		return done, unavailable(err)
	}
	if err := restoreGuards(ctx, db); err != nil {
		return done, unavailable(err)
	}
	if done.AppRole, err = m.applyGrants(ctx, db); err == nil {
		done.SubmitRoles, err = SubmitRoles(ctx, db)
	}
	return done, err
}

// checkServer returns nil if the database may have the schema.
func checkServer(ctx context.Context, db *sql.DB) error {
	var encoding string
	if err := db.QueryRowContext(ctx, `SELECT current_setting('server_encoding')`).Scan(&encoding); err != nil {
		return unavailable(err)
	}
	if err := stored.CheckEncoding(encoding); err != nil {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return nil
}

// migrateConns is what a migration needs: the migrations, their lock, and the lock of triggers.
const migrateConns = 3

// open returns a pool for the database of a URL. It connects on first use.
func open(databaseURL string) (*sql.DB, error) {
	dsn, err := pgurl.WithApplicationName(databaseURL, "recourse/migrate")
	if err != nil {
		return nil, unavailable(err)
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, unavailable(pgurl.ErrUnreadable)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(migrateConns)
	return db, nil
}

func unavailable(err error) error { return fmt.Errorf("postgres: %w", err) }

// sqlState returns the SQLSTATE of an error that the server sent, else "".
func sqlState(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return ""
}

// checkAppRole returns nil if no role is chosen or the role can be the app role, and no
// running process would lose privileges.
func (m Migration) checkAppRole(ctx context.Context, db *sql.DB) error {
	previous, err := storedAppRole(ctx, db)
	if err != nil {
		return unavailable(err)
	}
	role := m.effectiveAppRole(previous)
	if role != "" {
		if err := validateAppRole(ctx, db, role); err != nil {
			return err
		}
	}
	if m.SubmitRole != "" {
		if err := validateSubmitRole(ctx, db, m.SubmitRole, role); err != nil {
			return err
		}
	}
	return checkProcessesKeepPrivileges(ctx, db, previous, role)
}

// effectiveAppRole returns the role that processes are to connect as, given the one that
// the database remembers.
func (m Migration) effectiveAppRole(previous string) string {
	switch {
	case m.NoAppRole:
		return ""
	case m.AppRole != "":
		return m.AppRole
	}
	return previous
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	store, err := database.NewStore(goose.DialectPostgres, stored.VersionTable)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, migrations.Files, goose.WithStore(store), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
}
