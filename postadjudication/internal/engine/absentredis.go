package engine

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// ErrNoRedis is the error of every command to AbsentRedis.
var ErrNoRedis = errors.New("postadjudication: Config.Redis is needed to notify workers and to run")

// AbsentRedis is the Redis of a Service without one. It implements asynq.RedisConnOpt.
type AbsentRedis struct{}

// MakeRedisClient returns a client whose commands return ErrNoRedis.
func (AbsentRedis) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return nil, ErrNoRedis },
		MaxRetries: -1, // a retry would fail as well
	})
}
