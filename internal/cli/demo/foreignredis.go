package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/app"
)

const (
	// logicalDatabases is the default number of logical databases of a Redis.
	logicalDatabases = 16
	// lockKey reserves a logical database, so that two demonstrations do not share one.
	lockKey       = "recourse:demo"
	borrowTimeout = 20 * time.Second
	// lockTTL releases the database of a killed demonstration.
	lockTTL = 24 * time.Hour
)

// borrowRedis reserves an empty logical database on a named server. leave removes the keys of the
// demonstration.
func borrowRedis(ctx context.Context, redisURL string) (ours string, leave func() error, err error) {
	opt, err := app.ParseRedis(redisURL)
	if err != nil {
		return "", nil, err
	}
	server, ok := opt.(asynq.RedisClientOpt)
	if !ok || server.Network == "unix" {
		return "", nil, fmt.Errorf("the demonstration needs a single Redis, such as redis://host:6379")
	}
	for index := range logicalDatabases {
		free, err := take(ctx, server, index)
		if err != nil {
			return "", nil, fmt.Errorf("looking for an empty logical database on Redis: %w", err)
		}
		if free {
			guest, err := withDatabase(redisURL, index)
			return guest, func() error { return cleanUp(server, index) }, err
		}
	}
	return "", nil, errors.New("the Redis server has no empty logical database, and the demonstration does not share one: name another server by --redis, or leave it out")
}

// take reserves a logical database and reports whether it was empty.
func take(ctx context.Context, server asynq.RedisClientOpt, index int) (free bool, err error) {
	client := connect(server, index)
	defer func() { err = errors.Join(err, client.Close()) }()
	size, err := client.DBSize(ctx).Result()
	if err != nil || size > 0 {
		return false, ignoreOutOfRange(err)
	}
	if took, err := client.SetNX(ctx, lockKey, "taken", lockTTL).Result(); err != nil || !took {
		return false, err
	}
	if size, err = client.DBSize(ctx).Result(); err == nil && size == 1 {
		return true, nil
	}
	return false, errors.Join(err, client.Del(ctx, lockKey).Err())
}

// ignoreOutOfRange returns nil for the error of a server with fewer logical databases.
func ignoreOutOfRange(err error) error {
	if err != nil && redis.HasErrorPrefix(err, "ERR DB index is out of range") {
		return nil
	}
	return err
}

// cleanUp removes the keys of asynq and Recourse. The logical database was empty before, so all
// of them belong to the demonstration.
func cleanUp(server asynq.RedisClientOpt, index int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), borrowTimeout)
	defer cancel()
	client := connect(server, index)
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, pattern := range []string{"asynq:*", "recourse:*"} {
		keys := client.Scan(ctx, 0, pattern, 500).Iterator()
		for keys.Next(ctx) {
			if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}

func connect(server asynq.RedisClientOpt, index int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: server.Addr, Username: server.Username, Password: server.Password, TLSConfig: server.TLSConfig, DB: index,
	})
}

// withDatabase returns the URL with another logical database.
func withDatabase(redisURL string, index int) (string, error) {
	u, err := url.Parse(redisURL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + strconv.Itoa(index)
	return u.String(), nil
}
