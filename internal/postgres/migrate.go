package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchema means that the database's schema is not the one this program needs.
var ErrSchema = errors.New("schema")

const versionTable = "recourse.schema_version"

// Migration brings the schema of a database up to this program's version.
type Migration struct {
	DatabaseURL string // of the role that owns the schema, or is to
	AppRole     string // granted what processes need, now and by every later migration; empty: the one before
	NoAppRole   bool   // takes back what was granted, and grants nobody anything any more
}

// MigrationResult is what a migration came to.
type MigrationResult struct {
	From, To int64  // versions
	AppRole  string // the role that processes connect as; empty when none is known
}

// Migrate runs a Migration of which nothing is said but the database.
func Migrate(ctx context.Context, databaseURL string) (from, to int64, err error) {
	done, err := Migration{DatabaseURL: databaseURL}.Run(ctx)
	return done.From, done.To, err
}

// Run brings the schema up to this program's version, one migration a transaction, under a
// lock that keeps other migrating processes out. A schema that is newer than the program is
// refused with ErrSchema, and a role that processes must not connect as, or whose place another
// one has while processes work as that, with ErrAppRole, before anything is changed. Of a current schema it puts the triggers in force again that a restore
// left off, and the grants of the role.
func (m Migration) Run(ctx context.Context) (done MigrationResult, err error) {
	db, err := openPool(m.DatabaseURL, poolConfig{purpose: "migrate", maxConns: 3})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.PingContext(ctx); err != nil {
		return done, unavailable(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS recourse`); err != nil && sqlState(err) != "23505" {
		return done, unavailable(err)
	}
	if err := m.checkAppRole(ctx, db); err != nil {
		return done, err
	}
	p, err := newProvider(db)
	if err != nil {
		return done, err
	}
	done.From, done.To, err = p.GetVersions(ctx)
	if err != nil {
		return done, unavailable(err)
	}
	if done.From > done.To {
		return done, newerSchema(done.From, done.To)
	}
	if _, err := p.Up(ctx); err != nil {
		return done, unavailable(err)
	}
	if err := enableTriggers(ctx, db); err != nil {
		return done, unavailable(err)
	}
	done.AppRole, err = m.applyGrants(ctx, db)
	return done, err
}

// checkAppRole is nil when there is no role to grant anything, or it may be granted it, and when
// no process that runs would lose anything.
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
	return bereaves(ctx, db, previous, role)
}

// effectiveAppRole is the role that processes are to connect as, of a database that remembers one.
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
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	store, err := database.NewStore(goose.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, files, goose.WithStore(store), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
}

// CheckSchema compares the database's schema version with this program's. It
// changes nothing; the error wraps ErrSchema and says in one line what to do.
func CheckSchema(ctx context.Context, db *sql.DB) error {
	var have int64
	err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versionTable+` WHERE is_applied`).Scan(&have)
	switch sqlState(err) {
	case "42P01", "3F000":
		return fmt.Errorf("%w: the database has no Recourse schema; run: recourse migrate", ErrSchema)
	case "42501":
		return fmt.Errorf("%w: the role that connects may not read it; run: recourse migrate --app-role NAME, as the owner of the schema", ErrSchema)
	}
	if err != nil {
		return unavailable(err)
	}
	want, err := newestVersion()
	switch {
	case err != nil:
		return err
	case have < want:
		return fmt.Errorf("%w: the database is at version %d, this program needs %d; run: recourse migrate", ErrSchema, have, want)
	case have > want:
		return newerSchema(have, want)
	}
	return nil
}

func newestVersion() (int64, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	var v int64
	for _, f := range files {
		n, err := goose.NumericComponent(f)
		if err != nil {
			return 0, err
		}
		v = max(v, n)
	}
	return v, nil
}
