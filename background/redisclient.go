package background

import (
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What a connection to Redis goes by where the URL does not say. They are written down
// because go-redis has changed its own: how soon a Redis that went silent is noticed, and how
// long a process that ends waits for one, must not change with a library.
const (
	redisReadTimeout = 3 * time.Second
	// redisDials is how often one connection is dialled. A command that gets none is retried,
	// so that more dials multiply with its retries: a host that drops packets would hold it
	// for minutes.
	redisDials = 1
	// redisOnePool has pipelines share the connections of single commands. There are never
	// more than a few pipelines at one time, and every process would hold twice as many
	// connections.
	redisOnePool = -1
	// clusterReload is after how long the nodes of a Cluster are asked for anew.
	clusterReload = 10 * time.Second
)

// newRedisClient makes the client of a Redis. Other kinds of RedisConnOpt than asynq's make
// their own.
func newRedisClient(opt asynq.RedisConnOpt) (redis.UniversalClient, error) {
	switch o := opt.(type) {
	case asynq.RedisClientOpt:
		return redis.NewClient(&redis.Options{
			Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB,
			DialTimeout: o.DialTimeout, ReadTimeout: readTimeout(o.ReadTimeout), WriteTimeout: o.WriteTimeout,
			PoolSize: o.PoolSize, TLSConfig: o.TLSConfig,
			DialerRetries: redisDials, PipelinePoolSize: redisOnePool, MaintNotificationsConfig: noMaintenance(),
		}), nil
	case asynq.RedisFailoverClientOpt:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: o.MasterName, SentinelAddrs: o.SentinelAddrs, SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
			Username: o.Username, Password: o.Password, DB: o.DB,
			DialTimeout: o.DialTimeout, ReadTimeout: readTimeout(o.ReadTimeout), WriteTimeout: o.WriteTimeout,
			PoolSize: o.PoolSize, TLSConfig: o.TLSConfig,
			DialerRetries: redisDials, PipelinePoolSize: redisOnePool, // it never asks for notifications of maintenance
		}), nil
	case asynq.RedisClusterClientOpt:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: o.Addrs, MaxRedirects: o.MaxRedirects, Username: o.Username, Password: o.Password,
			DialTimeout: o.DialTimeout, ReadTimeout: readTimeout(o.ReadTimeout), WriteTimeout: o.WriteTimeout, TLSConfig: o.TLSConfig,
			DialerRetries: redisDials, PipelinePoolSize: redisOnePool, MaintNotificationsConfig: noMaintenance(),
			ClusterStateReloadInterval: clusterReload,
		}), nil
	}
	made := opt.MakeRedisClient()
	client, ok := made.(redis.UniversalClient)
	if !ok {
		return nil, fmt.Errorf("background: Config.Redis makes a %T, not a redis.UniversalClient", made)
	}
	return client, nil
}

func readTimeout(named time.Duration) time.Duration {
	if named == 0 {
		return redisReadTimeout
	}
	return named
}

// noMaintenance has no connection ask for notifications of maintenance. A client that gets
// them replaces its connections by others while commands are on their way and stretches its
// time-outs, and before all that it resolves the host's name while the process starts.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
