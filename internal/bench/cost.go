package main

import (
	"context"
	"fmt"
	rt "runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// meter reads what the client process and the two servers have spent so far.
type meter struct {
	redis                 *redis.Client
	redisPID, postgresPID int
}

// cost is one reading, or the difference of two.
type cost struct {
	at                      time.Duration // since the record's base
	client, redis, postgres time.Duration // CPU
	scripts                 int64         // run by Redis
	objects, bytes          uint64        // allocated by the client process
}

func (m meter) read(ctx context.Context, r *record) (cost, error) {
	heap := []rt.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	rt.Read(heap)
	c := cost{at: r.now(), objects: heap[0].Value.Uint64(), bytes: heap[1].Value.Uint64()}
	var err error
	if c.client, err = ownCPU(); err != nil {
		return c, err
	}
	if c.redis, err = cpuOf(m.redisPID); err != nil {
		return c, fmt.Errorf("CPU of Redis: %w", err)
	}
	if c.postgres, err = cpuOf(m.postgresPID); err != nil {
		return c, fmt.Errorf("CPU of Postgres: %w", err)
	}
	info, err := m.redis.Info(ctx, "commandstats").Result()
	if err != nil {
		return c, err
	}
	c.scripts, err = scriptsIn(info)
	return c, err
}

func (c cost) since(before cost) cost {
	return cost{
		at: c.at - before.at, client: c.client - before.client, redis: c.redis - before.redis,
		postgres: c.postgres - before.postgres, scripts: c.scripts - before.scripts,
		objects: c.objects - before.objects, bytes: c.bytes - before.bytes,
	}
}

// scriptsIn returns the calls of EVAL and EVALSHA in Redis's INFO commandstats.
func scriptsIn(info string) (int64, error) {
	var sum int64
	for line := range strings.Lines(info) {
		rest, ok := strings.CutPrefix(line, "cmdstat_eval")
		if !ok {
			continue
		}
		_, rest, _ = strings.Cut(rest, "calls=")
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("calls in %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}

// perTask writes the cost of one of n tasks.
func (c cost) perTask(n int, into metrics) {
	tasks := float64(n)
	into[clientCPU] = 1000 * c.client.Seconds() / tasks
	into[redisCPU] = 1000 * c.redis.Seconds() / tasks
	into[postgresCPU] = 1000 * c.postgres.Seconds() / tasks
	into[scripts] = float64(c.scripts) / tasks
	into[allocations] = float64(c.objects) / tasks
	into[allocatedKB] = float64(c.bytes) / 1000 / tasks
}

// shares writes how much of a core each process used.
func (c cost) shares(into metrics) {
	span := c.at.Seconds()
	into[clientShare] = 100 * c.client.Seconds() / span
	into[redisShare] = 100 * c.redis.Seconds() / span
	into[postgresShare] = 100 * c.postgres.Seconds() / span
}
