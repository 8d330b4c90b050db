package background

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// unanswered watches connections to Redis for questions whose answer is lost. The
// client asks again by itself over another connection and tells nobody, but a
// question for a task that was heard twice has taken two tasks, and gives one.
type unanswered struct{ lost func() }

// watch has a client tell of its connections, those of each node for a cluster.
func (u unanswered) watch(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(u) })
		return
	}
	client.AddHook(u)
}

// DialHook watches every connection but those that only listen: theirs are silences,
// not answers that are missing.
func (u unanswered) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil || ctx.Value(listening{}) != nil {
			return conn, err
		}
		watched := &watchedConn{Conn: conn, lost: u.lost}
		if raw, ok := conn.(syscall.Conn); ok {
			return rawWatchedConn{watched, raw}, nil
		}
		return watched, nil
	}
}

// ProcessHook changes nothing.
func (unanswered) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (unanswered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// listening marks the context in which a connection is made that only listens.
type listening struct{}

func toListen(ctx context.Context) context.Context {
	return context.WithValue(ctx, listening{}, true)
}

type watchedConn struct {
	net.Conn
	lost  func()
	asked atomic.Bool // since an answer began
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.look(err)
	if n > 0 {
		c.asked.Store(false)
	}
	return n, err
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.asked.Store(true)
	n, err := c.Conn.Write(b)
	c.look(err)
	return n, err
}

// look tells of an error. A connection that this process closes has lost an answer
// when it was asked, as at a failover; at its end it only listens.
func (c *watchedConn) look(err error) {
	if err != nil && (!errors.Is(err, net.ErrClosed) || c.asked.Load()) {
		c.lost()
	}
}

// rawWatchedConn is a watchedConn that go-redis can see to be closed by the other end
// before it asks anything over it.
type rawWatchedConn struct {
	*watchedConn
	syscall.Conn
}
