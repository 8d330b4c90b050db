package app

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	_ "github.com/lib/pq" // the driver that creates and drops databases

	"github.com/recourse-dev/recourse/internal/pgurl"
)

// dropTimeout limits how long dropping a database may take.
const dropTimeout = 20 * time.Second

// FreshDatabase creates an empty database "<prefix>_<random>" on a server and returns its URL.
// drop removes it and terminates its sessions.
func FreshDatabase(ctx context.Context, serverURL, prefix string) (databaseURL string, drop func() error, err error) {
	normal, err := pgurl.WithApplicationName(serverURL, "recourse/demo")
	if err != nil {
		return "", nil, optionError("%w", err)
	}
	u, err := url.Parse(normal)
	if err != nil {
		return "", nil, optionError("%w", pgurl.ErrUnreadable)
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", nil, err
	}
	name := prefix + "_" + hex.EncodeToString(random[:])
	if err := execute(ctx, normal, `CREATE DATABASE "`+name+`"`); err != nil {
		return "", nil, fmt.Errorf("creating the database %s: %w", name, err)
	}
	u.Path = "/" + name
	return u.String(), func() error {
		// A new context: the caller's may have ended, and the database must be dropped nevertheless.
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := execute(ctx, normal, `DROP DATABASE "`+name+`" WITH (FORCE)`); err != nil {
			return fmt.Errorf("dropping the database %s: %w", name, err)
		}
		return nil
	}, nil
}

// OtherDatabase returns serverURL with the database of databaseURL, and the role in serverURL.
func OtherDatabase(serverURL, databaseURL string) (other, role string, err error) {
	normal, err := pgurl.Normalize(serverURL)
	if err != nil {
		return "", "", optionError("%w", err)
	}
	u, errServer := url.Parse(normal)
	of, errDatabase := url.Parse(databaseURL)
	if errServer != nil || errDatabase != nil {
		return "", "", optionError("%w", pgurl.ErrUnreadable)
	}
	u.Path = of.Path
	return u.String(), u.User.Username(), nil
}

func execute(ctx context.Context, databaseURL, statement string) error {
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
