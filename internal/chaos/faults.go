package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/receipts"
)

// fault breaks something. Heal makes it work again, and is called once, after the
// fault has lasted as long as the schedule says.
type fault struct {
	name   string
	weight int
	freeze bool   // lasts as long as a freeze
	people bool   // is done by people or callers, beside the other faults
	later  string // what the product does not survive of it yet; then it strikes only when it is named
	strike func(ctx context.Context, a *arena, rng *rand.Rand) (detail string, err error)
	heal   func(ctx context.Context, a *arena) error // nil: the workers are all that may be missing
}

// faults is what may happen to machines, and what people do. The schedule draws by weight.
var faults = slices.Concat(machines, people)

// machines is what may happen to them.
var machines = []fault{
	{name: "worker-kill", weight: 4, strike: workerKill},
	{name: "worker-failpoint", weight: 4, strike: workerFailpoint},
	{name: "worker-freeze", weight: 2, freeze: true, strike: workerFreeze},
	{name: "worker-freeze-claimed", weight: 3, freeze: true, strike: workerFreezeClaimed, heal: thawClaimed},
	{name: "worker-other-shards", weight: 2, later: "runs in queues that nobody serves any more", strike: workerOtherShards, heal: sameSettings},
	{name: "worker-without-family", weight: 2, strike: workerWithoutFamily, heal: sameSettings},
	{name: "rows-of-the-future", weight: 2, strike: spoilRows, heal: mendRows},
	{name: "clocks-differ", weight: 2, later: "clocks that differ", strike: clocksDiffer},
	{name: "clock-beyond", weight: 2, later: "a clock that is far off", strike: clockBeyond, heal: clocksRight},
	{name: "worker-restart", weight: 2, strike: workerRestart},
	{name: "all-workers-kill", weight: 1, strike: allWorkersKill},
	{name: "clock-step", weight: 2, strike: clockStep},
	{name: "redis-flush", weight: 2, strike: func(ctx context.Context, a *arena, _ *rand.Rand) (string, error) {
		return "FLUSHALL", a.keys.FlushAll(ctx).Err()
	}},
	{name: "redis-restart", weight: 2, strike: func(context.Context, *arena, *rand.Rand) (string, error) { return "", nil },
		heal: func(ctx context.Context, a *arena) error { return a.redis.Restart(ctx) }},
	{name: "redis-kill", weight: 2, strike: func(_ context.Context, a *arena, _ *rand.Rand) (string, error) { return "SIGKILL", a.redis.Kill() },
		heal: func(ctx context.Context, a *arena) error { return a.redisBack(ctx) }},
	{name: "redis-full", weight: 2, strike: func(ctx context.Context, a *arena, _ *rand.Rand) (string, error) {
		return "maxmemory 1, noeviction", a.keys.ConfigSet(ctx, "maxmemory", "1").Err()
	}, heal: func(ctx context.Context, a *arena) error { return a.redisBack(ctx) }},
	{name: "postgres-fast", weight: 1, strike: func(ctx context.Context, a *arena, _ *rand.Rand) (string, error) {
		return "restarted at once", a.postgres.Restart(ctx, localpg.Fast)
	}},
	{name: "postgres-immediate", weight: 2, strike: func(ctx context.Context, a *arena, _ *rand.Rand) (string, error) {
		return "restarted at once", a.postgres.Restart(ctx, localpg.Immediate)
	}},
	{name: "postgres-kill", weight: 2, strike: func(_ context.Context, a *arena, _ *rand.Rand) (string, error) { return "SIGKILL", a.postgres.Kill() },
		heal: func(ctx context.Context, a *arena) error { return a.postgresBack(ctx) }},
	{name: "both-kill", weight: 1, strike: bothKill, heal: func(ctx context.Context, a *arena) error {
		if err := a.postgresBack(ctx); err != nil {
			return err
		}
		return a.redisBack(ctx)
	}},
	{name: "network-slow", weight: 2, strike: network(func(p *proxy, rng *rand.Rand) string {
		d := time.Duration(5+rng.IntN(120)) * time.Millisecond
		p.set(passing, d)
		return d.String() + " each way"
	}), heal: passAgain},
	{name: "network-cut", weight: 2, strike: network(func(p *proxy, _ *rand.Rand) string { p.set(cut, 0); return "" }), heal: passAgain},
	{name: "network-stall", weight: 2, strike: network(func(p *proxy, _ *rand.Rand) string { p.set(stalled, 0); return "" }), heal: passAgain},
	{name: "network-half-open", weight: 2, strike: network(func(p *proxy, _ *rand.Rand) string { p.deafen(); return "what is connected is deaf for ever" })},
	{name: "deliveries-doubled", weight: 2, strike: deliveriesDoubled},
	{name: "operator-deletes", weight: 1, strike: operator(deletePending)},
	{name: "operator-archives", weight: 1, strike: operator(archivePending)},
	{name: "operator-runs-letters", weight: 1, strike: operator(runArchived)},
	{name: "operator-deletes-letters", weight: 1, strike: operator(deleteArchived)},
}

// named are the faults that a list names; when it names none, all that the product
// survives.
func named(list string) (out []fault, err error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.later != "" }), nil
	}
	for _, name := range strings.Split(list, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("chaos: there is no fault %q", name)
		}
		out = append(out, faults[i])
	}
	return out, nil
}

func workerKill(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d, SIGKILL", i), a.fleet.killOne(i)
}

func allWorkersKill(_ context.Context, a *arena, _ *rand.Rand) (string, error) {
	return "SIGKILL", a.fleet.kill()
}

// workerFailpoint replaces a worker by one that kills itself at some point.
func workerFailpoint(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	points := []string{
		failpoint.Point(failpoint.BellBefore, failpoint.Task), failpoint.Point(failpoint.BellAfter, failpoint.Task),
		failpoint.Point(failpoint.CallBefore, failpoint.Executor), failpoint.Point(failpoint.CallAfter, failpoint.Executor),
	}
	for _, m := range []failpoint.Moment{failpoint.JournalBefore, failpoint.JournalAfter} {
		for _, what := range []string{failpoint.Open, failpoint.Ring, failpoint.Sequence, failpoint.Bury, failpoint.Brake, failpoint.BrakeStep, failpoint.BrakeTell} {
			points = append(points, failpoint.Point(m, what))
		}
		for _, s := range []receipts.Subtype{receipts.AttemptStarted, receipts.AttemptSucceeded, receipts.RetryScheduled, receipts.DeadLettered,
			receipts.AttemptInterrupted, receipts.AnsweredLate, receipts.Reconciled, receipts.Cancelled, receipts.ManualRetryRequested} {
			points = append(points, failpoint.Point(m, string(s)))
		}
	}
	point := fmt.Sprintf("%s:%d", points[rng.IntN(len(points))], 1+rng.IntN(5))
	if err := a.fleet.killOne(i); err != nil {
		return "", err
	}
	return fmt.Sprintf("worker %d, %s", i, point), a.fleet.start(i, point)
}

func workerFreeze(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d, SIGSTOP", i), a.fleet.freeze(i)
}

func workerRestart(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d, SIGTERM", i), a.fleet.at(i).stop()
}

// clockStep sets the clock of one worker, always the same, some seconds off.
func clockStep(ctx context.Context, a *arena, rng *rand.Rand) (string, error) {
	offset := time.Duration(rng.IntN(10001)-5000) * time.Millisecond
	_, err := a.fleet.at(0).ask(ctx, worker.Command{Do: worker.Clock, Offset: offset})
	if err == errGone {
		err = nil // it was dead anyhow
	}
	return fmt.Sprintf("worker 0, %s", offset), err
}

func bothKill(_ context.Context, a *arena, _ *rand.Rand) (string, error) {
	if err := a.redis.Kill(); err != nil {
		return "", err
	}
	return "SIGKILL to Postgres and Redis", a.postgres.Kill()
}

// network spoils the way to one of the servers.
func network(spoil func(*proxy, *rand.Rand) string) func(context.Context, *arena, *rand.Rand) (string, error) {
	return func(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
		name := []string{"postgres", "redis", "escrow"}[rng.IntN(3)]
		detail := spoil(a.ways[name], rng)
		return "to " + name + " " + detail, nil
	}
}

func passAgain(_ context.Context, a *arena) error {
	for _, p := range a.ways {
		p.set(passing, 0)
	}
	return nil
}

// deliveriesDoubled rings bells that nobody raised, for runs that may be anywhere.
func deliveriesDoubled(ctx context.Context, a *arena, rng *rand.Rand) (string, error) {
	rows, err := a.db.QueryContext(ctx, `SELECT id, queue, family, bell FROM recourse.runs ORDER BY id DESC LIMIT 200`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id, queue, family string
		var bell int
		if err := rows.Scan(&id, &queue, &family, &bell); err != nil {
			return "", err
		}
		task := asynq.NewTask(family, []byte(id))
		for range 2 {
			n++
			if _, err := a.client.EnqueueContext(ctx, task, asynq.Queue(queue), asynq.TaskID(fmt.Sprintf("%s.%d", id, bell+100+rng.IntN(1<<20)))); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%d bells", n), rows.Err()
}
