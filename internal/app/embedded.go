//go:build !production

package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// DemoBuild reports whether this program has private servers and the escrow service for
// demonstrations. A build with the tag production has neither.
const DemoBuild = true

const embeddedHint = ", or use --embedded for a demonstration"

// EmbeddedEscrow is the escrow service for demonstrations.
type EmbeddedEscrow = fakeescrow.Service

// embed starts the escrow service for demonstrations.
func (e *Escrow) embed() error {
	service, err := fakeescrow.Start(fakeescrow.Config{})
	if err != nil {
		return err
	}
	e.url, e.embedded, e.stop = service.URL(), service, service.Close
	e.wrap = func(calls *escrowhttp.Executor) escrow.Executor { return fakeescrow.NewPanicking(calls) }
	return nil
}

// startPostgres starts a private Postgres with the schema. Close stops it.
func (m *Main) startPostgres(ctx context.Context) (databaseURL string, err error) {
	server, err := localpg.Start(ctx, localpg.Options{Durable: true})
	if err != nil {
		return "", fmt.Errorf("starting a private Postgres: %w", err)
	}
	m.onClose(server.Stop)
	_, err = postadjudication.Migration{DatabaseURL: server.URL("postgres"), AppRole: localpg.AppRole}.Run(ctx)
	return server.AppURL("postgres"), err
}

// startRedis starts a Redis in this process. Close stops it.
func (m *Main) startRedis() (redisURL string, err error) {
	memory, err := startMemoryRedis()
	if err != nil {
		return "", fmt.Errorf("starting a Redis in this process: %w", err)
	}
	m.onClose(func() error { memory.close(); return nil })
	return memory.url(), nil
}

// memoryTick is how often the clock of a memoryRedis is advanced.
const memoryTick = 100 * time.Millisecond

// memoryRedis is a Redis in this process. Its clock, by which keys expire, advances only by
// FastForward.
type memoryRedis struct {
	server   *miniredis.Miniredis
	password string // every user of the machine can reach the port
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
