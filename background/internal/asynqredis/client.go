package asynqredis

import (
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Settings of a connection to Redis that the URL does not set. They are stated here because
// go-redis has changed its defaults, and two times must not change with a library: how soon a
// silent Redis is noticed, and how long a process that ends waits for it.
const (
	redisReadTimeout = 3 * time.Second
	// redisDials is how often one connection is dialled. A command without connection is
	// retried, so more dials multiply with its retries: a host that drops packets would block it
	// for minutes.
	redisDials = 1
	// redisOnePool makes pipelines share the connections of single commands. Only a few
	// pipelines run at one time, and with a pool of their own every process would hold twice as
	// many connections.
	redisOnePool = -1
	// clusterReload is the interval at which the nodes of a Cluster are read again.
	clusterReload = 10 * time.Second
)

// NewClient returns the client for opt. A RedisConnOpt of another package than asynq makes
// its own.
func NewClient(opt asynq.RedisConnOpt) (redis.UniversalClient, error) {
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
			DialerRetries: redisDials, PipelinePoolSize: redisOnePool, // this client has no maintenance notifications
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
		return nil, fmt.Errorf("asynqredis: the option makes a %T, not a redis.UniversalClient", made)
	}
	return client, nil
}

func readTimeout(named time.Duration) time.Duration {
	if named == 0 {
		return redisReadTimeout
	}
	return named
}

// noMaintenance disables maintenance notifications. A client that gets them replaces its
// connections while commands are on their way and extends its time-outs. It also resolves the
// host's name while the process starts.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
