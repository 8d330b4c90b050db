package background

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
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

// newRedisClient returns the client for opt. A RedisConnOpt of another package than asynq makes
// its own.
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

// noMaintenance disables maintenance notifications. A client that gets them replaces its
// connections while commands are on their way and extends its time-outs. It also resolves the
// host's name while the process starts.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// lostReplyHook watches connections to Redis for commands whose reply is lost. The client
// retries such a command over another connection and reports nothing. But a dequeue that Redis
// executed twice has taken two tasks, and asynq gets one.
type lostReplyHook struct{ onLost func() }

// install adds the hook to a client, or to the client of each node for a cluster.
func (u lostReplyHook) install(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(u) })
		return
	}
	client.AddHook(u)
}

// DialHook watches every connection except those that only listen: they wait for no reply.
func (u lostReplyHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil || ctx.Value(listenOnlyKey{}) != nil {
			return conn, err
		}
		watched := &watchedConn{Conn: conn, onLost: u.onLost}
		if raw, ok := conn.(syscall.Conn); ok {
			return rawWatchedConn{watched, raw}, nil
		}
		return watched, nil
	}
}

// ProcessHook changes nothing.
func (lostReplyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (lostReplyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// listenOnlyKey marks the context of a connection that only listens.
type listenOnlyKey struct{}

func withListenOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, listenOnlyKey{}, true)
}

type watchedConn struct {
	net.Conn
	onLost        func()
	awaitingReply atomic.Bool // written to and nothing read since
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.checkErr(err)
	if n > 0 {
		c.awaitingReply.Store(false)
	}
	return n, err
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.awaitingReply.Store(true)
	n, err := c.Conn.Write(b)
	c.checkErr(err)
	return n, err
}

// checkErr reports an error. A connection closed by this process has lost a reply if one was
// awaited, as at a failover; otherwise it was idle.
func (c *watchedConn) checkErr(err error) {
	if err != nil && (!errors.Is(err, net.ErrClosed) || c.awaitingReply.Load()) {
		c.onLost()
	}
}

// rawWatchedConn is a watchedConn on which go-redis can check, before it sends a command,
// whether the other end has closed it.
type rawWatchedConn struct {
	*watchedConn
	syscall.Conn
}
