//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	_ "github.com/lib/pq" // the driver that creates the database

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
)

const (
	database = "recourse"
	// connections is enough for `go test ./...`, which runs a process for each package.
	connections = 300

	databaseVariable = "RECOURSE_DATABASE_URL"
	ownerVariable    = "RECOURSE_OWNER_DATABASE_URL"
	redisVariable    = "RECOURSE_REDIS_URL"
)

// servers are the two private servers, both running.
type servers struct {
	postgres *localpg.Server
	redis    *localredis.Server
}

// startServers starts both servers concurrently. If one fails it stops the other.
func startServers(ctx context.Context, durable bool) (*servers, error) {
	s := &servers{}
	failed := make(chan error, 1)
	go func() {
		var err error
		s.redis, err = localredis.Start(ctx, localredis.Options{})
		failed <- err
	}()
	var err error
	if s.postgres, err = localpg.Start(ctx, localpg.Options{Durable: durable, MaxConnections: connections}); err == nil {
		err = createDatabase(ctx, s.postgres.URL("postgres"))
	}
	if err = errors.Join(err, <-failed); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func createDatabase(ctx context.Context, url string) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	if _, err = db.ExecContext(ctx, "create database "+database); err != nil {
		err = fmt.Errorf("creating the database %s: %w", database, err)
	}
	return errors.Join(err, db.Close())
}

// stop stops the servers and removes their files.
func (s *servers) stop() error {
	var postgres, redis error
	if s.postgres != nil {
		postgres = s.postgres.Stop()
	}
	if s.redis != nil {
		redis = s.redis.Stop()
	}
	return errors.Join(postgres, redis)
}

// environment returns env with the three variables set.
func (s *servers) environment(env []string) []string {
	given := map[string]string{databaseVariable: s.postgres.AppURL(database), ownerVariable: s.postgres.URL(database), redisVariable: s.redis.URL()}
	out := slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, ours := given[name]
		return ours
	})
	for _, name := range slices.Sorted(maps.Keys(given)) {
		out = append(out, name+"="+given[name])
	}
	return out
}
