package postgres

import (
	"context"
	"errors"
)

// MigrateTo brings a schema up to a version that need not be this program's.
func MigrateTo(ctx context.Context, databaseURL string, version int64) (err error) {
	db, err := openPool(databaseURL, poolConfig{purpose: "migrate", maxConns: 3})
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
