package background

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// lostReplyHook watches connections to Redis for questions whose answer is lost. The
// client asks again by itself over another connection and tells nobody, but a
// question for a task that was heard twice has taken two tasks, and gives one.
type lostReplyHook struct{ onLost func() }

// install has a client tell of its connections, those of each node for a cluster.
func (u lostReplyHook) install(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(u) })
		return
	}
	client.AddHook(u)
}

// DialHook watches every connection but those that only listen: theirs are silences,
// not answers that are missing.
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

// listenOnlyKey marks the context in which a connection is made that only listens.
type listenOnlyKey struct{}

func withListenOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, listenOnlyKey{}, true)
}

type watchedConn struct {
	net.Conn
	onLost        func()
	awaitingReply atomic.Bool // since an answer began
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

// checkErr tells of an error. A connection that this process closes has lost an answer
// when it was asked, as at a failover; at its end it only listens.
func (c *watchedConn) checkErr(err error) {
	if err != nil && (!errors.Is(err, net.ErrClosed) || c.awaitingReply.Load()) {
		c.onLost()
	}
}

// rawWatchedConn is a watchedConn that go-redis can see to be closed by the other end
// before it asks anything over it.
type rawWatchedConn struct {
	*watchedConn
	syscall.Conn
}
