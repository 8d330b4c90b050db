package stored

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/migrations"
)

// ErrSchema means that the database's schema is not the one this program needs.
var ErrSchema = errors.New("schema")

// ErrSubmitRole means that the role of a transaction opens cases and changes none that exists, as one of migrate --submit-role does.
var ErrSubmitRole = errors.New("the role of the transaction may open cases, and change none")

// VersionTable is the table of the migrations that were applied.
const VersionTable = "recourse.schema_version"

// CheckSchema compares the database's schema version with this program's. The error wraps
// ErrSchema and says in one line what to do.
func CheckSchema(ctx context.Context, db *sql.DB) error {
	var have int64
	err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM `+VersionTable+` WHERE is_applied`).Scan(&have)
	var refused *pq.Error
	if errors.As(err, &refused) {
		switch refused.Code {
		case "42P01", "3F000":
			return fmt.Errorf("%w: the database has no Recourse schema; run: recourse migrate", ErrSchema)
		case "42501":
			return fmt.Errorf("%w: the role of this connection may not read it. As the owner of the schema, run for the role of the processes: recourse migrate --app-role NAME; for one that only reads: GRANT USAGE ON SCHEMA recourse TO NAME; GRANT SELECT ON ALL TABLES IN SCHEMA recourse TO NAME", ErrSchema)
		}
	}
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	want, err := migrations.Newest()
	if err != nil {
		return err
	}
	if err := CheckVersion(have, want); err != nil {
		return err
	}
	if have < want {
		return fmt.Errorf("%w: the database is at version %d, this program needs %d; run: recourse migrate", ErrSchema, have, want)
	}
	return nil
}

// oldestVersion is the first version that this program can migrate.
const oldestVersion = 100

// CheckVersion returns nil if a program of version want can migrate a schema of version have to its own, or
// both are the same. 0 is a schema without tables.
func CheckVersion(have, want int64) error {
	switch {
	case have > want:
		return NewerSchema(have, want)
	case have > 0 && have < oldestVersion:
		return fmt.Errorf("%w: the database is at version %d and was made by a version before %d; this version can't read it: migrate a new database", ErrSchema, have, oldestVersion)
	}
	return nil
}

// NewerSchema returns the error for a schema that is newer than the program.
func NewerSchema(have, want int64) error {
	return fmt.Errorf("%w: the database is at version %d, newer than this program's %d; use a newer recourse", ErrSchema, have, want)
}

// CheckEncoding returns nil if a database of an encoding keeps every text. Otherwise the error says in one line what to do.
func CheckEncoding(name string) error {
	if name == "UTF8" {
		return nil
	}
	return fmt.Errorf("the database has the encoding %s, and only one with UTF8 keeps every text; use another database, made by: CREATE DATABASE NAME ENCODING 'UTF8' TEMPLATE template0", name)
}
