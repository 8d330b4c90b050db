package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
)

// servers are the private servers of a run, with connections to manage them.
type servers struct {
	postgres *localpg.Server
	redis    *localredis.Server
	admin    *sql.DB
	client   *redis.Client
}

func startServers(ctx context.Context) (s *servers, err error) {
	s = &servers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.postgres, err = localpg.Start(ctx, localpg.Options{Durable: true}); err != nil {
		return s, err
	}
	if s.redis, err = localredis.Start(ctx, localredis.Options{AppendOnly: true}); err != nil {
		return s, err
	}
	if s.admin, err = sql.Open("postgres", s.postgres.URL("postgres")); err != nil {
		return s, err
	}
	options, err := redis.ParseURL(s.redis.URL())
	if err != nil {
		return s, err
	}
	s.client = redis.NewClient(options)
	return s, s.preallocateWAL(ctx)
}

// preallocateWAL creates as many WAL files as a run may need, and has the server keep them: a
// server that has run for a while writes into old files, and creates no new ones.
func (s *servers) preallocateWAL(ctx context.Context) error {
	for _, statement := range []string{
		`ALTER SYSTEM SET min_wal_size = '1GB'`, `ALTER SYSTEM SET max_wal_size = '4GB'`, `SELECT pg_reload_conf()`,
		`SELECT count(pg_logical_emit_message(false, 'bench', repeat('x', 1 << 20))) FROM generate_series(1, 1024)`, `CHECKPOINT`,
	} {
		if _, err := s.admin.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s *servers) stop() error {
	var all []error
	if s.client != nil {
		all = append(all, s.client.Close())
	}
	if s.admin != nil {
		all = append(all, s.admin.Close())
	}
	if s.redis != nil {
		all = append(all, s.redis.Stop())
	}
	if s.postgres != nil {
		all = append(all, s.postgres.Stop())
	}
	return errors.Join(all...)
}

// createDatabase empties Redis and creates an empty database, after a checkpoint, so that no
// measurement writes the pages of the one before.
func (s *servers) createDatabase(ctx context.Context, database string) error {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if _, err := s.admin.ExecContext(ctx, `CHECKPOINT`); err != nil {
		return err
	}
	_, err := s.admin.ExecContext(ctx, `CREATE DATABASE "`+database+`"`)
	return err
}

func (s *servers) dropDatabase(ctx context.Context, database string) error {
	_, err := s.admin.ExecContext(ctx, `DROP DATABASE "`+database+`" WITH (FORCE)`)
	return err
}

// walStats are the commits of a database and the bytes written to the WAL.
type walStats struct{ commits, wal float64 }

// sessionEndTimeout is how long sessions may take to end after their client has ended.
const sessionEndTimeout = 20 * time.Second

// written waits until the last session of the database has ended, and reads its counts: they
// are complete only then.
func (s *servers) written(ctx context.Context, database string) (w walStats, err error) {
	ctx, cancel := context.WithTimeout(ctx, sessionEndTimeout)
	defer cancel()
	for sessions := -1; sessions != 0; {
		const ask = `SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'`
		if err := s.admin.QueryRowContext(ctx, ask, database).Scan(&sessions); err != nil {
			return w, fmt.Errorf("waiting for the sessions of %s to end: %w", database, err)
		}
		if sessions != 0 {
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return w, fmt.Errorf("%d sessions of %s did not end: %w", sessions, database, err)
			}
		}
	}
	err = s.admin.QueryRowContext(ctx, `SELECT xact_commit, pg_current_wal_lsn() - '0/0' FROM pg_stat_database WHERE datname = $1`, database).
		Scan(&w.commits, &w.wal)
	return w, err
}
