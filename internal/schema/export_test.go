package schema

import (
	"context"
	"errors"
)

// MigrateTo migrates a schema to any version, and does nothing else that Run does.
func MigrateTo(ctx context.Context, databaseURL string, version int64) (err error) {
	db, err := open(databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS recourse`); err != nil {
		return err
	}
	p, err := newProvider(db)
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}
