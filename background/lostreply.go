package background

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

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
