//go:build !production

package app

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// memoryTick is how often the time of a memory Redis is moved on.
const memoryTick = 100 * time.Millisecond

// memoryRedis is a Redis within the process. Keys expire by its own clock, which
// stands still unless it is moved.
type memoryRedis struct {
	server   *miniredis.Miniredis
	password string // whoever may use the machine can reach the port
	end      context.CancelFunc
	ticks    sync.WaitGroup
}

func startMemoryRedis() (*memoryRedis, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	r := &memoryRedis{server: server, password: rand.Text(), end: end}
	server.RequireAuth(r.password)
	r.ticks.Go(func() { r.keepTime(ctx) })
	return r, nil
}

func (r *memoryRedis) keepTime(ctx context.Context) {
	tick := time.NewTicker(memoryTick)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			r.server.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (r *memoryRedis) url() string { return "redis://:" + r.password + "@" + r.server.Addr() + "/0" }

func (r *memoryRedis) close() {
	r.end()
	r.ticks.Wait()
	r.server.Close()
}
