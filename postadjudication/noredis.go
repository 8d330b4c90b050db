package postadjudication

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// ErrNoRedis means that a Service was opened without a Redis. It looks as any other,
// and what it writes is written: the bell is rung by the sweeper of a process that
// executes. It does not Run.
var ErrNoRedis = errors.New("postadjudication: Config.Redis is needed to ring bells and to run")

// absentRedis stands where none is named: every word to it is answered ErrNoRedis.
type absentRedis struct{}

// MakeRedisClient is what asynq asks of a Redis.
func (absentRedis) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return nil, ErrNoRedis },
		MaxRetries: -1, // another try finds none either
	})
}
