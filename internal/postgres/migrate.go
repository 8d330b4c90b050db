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

// Migrate brings the schema up to this program's version, one migration a
// transaction, under a lock that keeps other migrating processes out. It gives
// the version before and after. A schema that is newer than the program is
// refused with ErrSchema. Of a current schema it puts the triggers in force again that a
// restore left off.
func Migrate(ctx context.Context, databaseURL string) (from, to int64, err error) {
	db, err := pool(databaseURL, connections{purpose: "migrate", most: 3})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.PingContext(ctx); err != nil {
		return 0, 0, unavailable(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS recourse`); err != nil && sqlState(err) != "23505" {
		return 0, 0, unavailable(err)
	}
	p, err := provider(db)
	if err != nil {
		return 0, 0, err
	}
	from, to, err = p.GetVersions(ctx)
	if err != nil {
		return from, to, unavailable(err)
	}
	if from > to {
		return from, to, newerSchema(from, to)
	}
	if _, err := p.Up(ctx); err != nil {
		return from, to, unavailable(err)
	}
	if err := guardAll(ctx, db); err != nil {
		return from, to, unavailable(err)
	}
	return from, to, nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
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
	}
	if err != nil {
		return unavailable(err)
	}
	want, err := newest()
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

func newest() (int64, error) {
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
