package asynqredis

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// WatchReplies calls onLost when a command of the client, or of a node of a cluster, was sent and
// its reply is lost.
func WatchReplies(client redis.UniversalClient, onLost func()) {
	hook := LostReplyHook{OnLost: onLost}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		return
	}
	client.AddHook(hook)
}

// LostReplyHook watches connections to Redis for commands whose reply is lost. The client
// retries such a command over another connection and reports nothing. But a dequeue that Redis
// executed twice has taken two tasks, and asynq gets one.
type LostReplyHook struct{ OnLost func() }

// DialHook watches every connection except those that only listen: they wait for no reply.
func (u LostReplyHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil || ctx.Value(listenOnlyKey{}) != nil {
			return conn, err
		}
		watched := &watchedConn{Conn: conn, onLost: u.OnLost}
		if raw, ok := conn.(syscall.Conn); ok {
			return rawWatchedConn{watched, raw}, nil
		}
		return watched, nil
	}
}

// ProcessHook changes nothing.
func (LostReplyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (LostReplyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// listenOnlyKey marks the context of a connection that only listens.
type listenOnlyKey struct{}

// WithListenOnly marks the context of a connection that only listens. Its replies are not watched.
func WithListenOnly(ctx context.Context) context.Context {
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
