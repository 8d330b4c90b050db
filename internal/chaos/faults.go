package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/receipts"
)

// fault breaks something. heal repairs it, and is called once, after the fault has lasted
// as long as the schedule says.
type fault struct {
	name       string
	weight     int
	freeze     bool // lasts as long as a freeze
	byPeople   bool // is done by people or callers, at the same time as other faults
	onlyByName bool // is injected only if -only names it; the schedule of a seed does not draw it
	inject     func(ctx context.Context, a *testbed, rng *rand.Rand) (detail string, err error)
	heal       func(ctx context.Context, a *testbed) error // nil: only workers may have to be restarted
}

// faults are the failures of machines and the acts of people. The schedule draws by weight.
var faults = slices.Concat(machines, people, services)

// machines are the failures of machines.
var machines = []fault{
	{name: "worker-kill", weight: 4, inject: workerKill},
	{name: "worker-failpoint", weight: 4, inject: workerFailpoint},
	{name: "worker-freeze", weight: 2, freeze: true, inject: workerFreeze},
	{name: "worker-freeze-claimed", weight: 3, freeze: true, inject: workerFreezeClaimed, heal: thawClaimed},
	{name: "worker-other-shards", weight: 2, onlyByName: true, inject: workerOtherShards, heal: restoreSettings},
	{name: "worker-without-family", weight: 2, inject: workerWithoutFamily, heal: restoreSettings},
	{name: "rows-of-the-future", weight: 2, inject: corruptRows, heal: restoreRows},
	{name: "clocks-differ", weight: 2, onlyByName: true, inject: clocksDiffer},
	{name: "clock-beyond", weight: 2, onlyByName: true, inject: clockFarOff, heal: clocksRestored},
	{name: "worker-restart", weight: 2, inject: workerRestart},
	{name: "all-workers-kill", weight: 1, inject: allWorkersKill},
	{name: "clock-step", weight: 2, inject: clockStep},
	{name: "database-clock", weight: 3, inject: databaseClockAhead, heal: databaseClockRight},
	{name: "redis-flush", weight: 2, inject: func(ctx context.Context, a *testbed, _ *rand.Rand) (string, error) {
		return "FLUSHALL", a.redisClient.FlushAll(ctx).Err()
	}},
	{name: "redis-restart", weight: 2, inject: func(context.Context, *testbed, *rand.Rand) (string, error) { return "", nil },
		heal: func(ctx context.Context, a *testbed) error { return a.redis.Restart(ctx) }},
	{name: "redis-kill", weight: 2, inject: func(_ context.Context, a *testbed, _ *rand.Rand) (string, error) { return "SIGKILL", a.redis.Kill() },
		heal: func(ctx context.Context, a *testbed) error { return a.restoreRedis(ctx) }},
	{name: "redis-full", weight: 2, inject: func(ctx context.Context, a *testbed, _ *rand.Rand) (string, error) {
		return "maxmemory 1, noeviction", a.redisClient.ConfigSet(ctx, "maxmemory", "1").Err()
	}, heal: func(ctx context.Context, a *testbed) error { return a.restoreRedis(ctx) }},
	{name: "postgres-fast", weight: 1, inject: func(ctx context.Context, a *testbed, _ *rand.Rand) (string, error) {
		return "restarted at once", a.postgres.Restart(ctx, localpg.Fast)
	}},
	{name: "postgres-immediate", weight: 2, inject: func(ctx context.Context, a *testbed, _ *rand.Rand) (string, error) {
		return "restarted at once", a.postgres.Restart(ctx, localpg.Immediate)
	}},
	{name: "postgres-kill", weight: 2, inject: func(_ context.Context, a *testbed, _ *rand.Rand) (string, error) { return "SIGKILL", a.postgres.Kill() },
		heal: func(ctx context.Context, a *testbed) error { return a.restorePostgres(ctx) }},
	{name: "both-kill", weight: 1, inject: bothKill, heal: func(ctx context.Context, a *testbed) error {
		if err := a.restorePostgres(ctx); err != nil {
			return err
		}
		return a.restoreRedis(ctx)
	}},
	{name: "network-slow", weight: 2, inject: network(func(p *proxy, rng *rand.Rand) string {
		d := time.Duration(5+rng.IntN(120)) * time.Millisecond
		p.setMode(modePass, d)
		return d.String() + " each way"
	}), heal: restoreNetwork},
	{name: "network-cut", weight: 2, inject: network(func(p *proxy, _ *rand.Rand) string { p.setMode(modeReset, 0); return "" }), heal: restoreNetwork},
	{name: "network-stall", weight: 2, inject: network(func(p *proxy, _ *rand.Rand) string { p.setMode(modeStall, 0); return "" }), heal: restoreNetwork},
	{name: "network-half-open", weight: 2, inject: network(func(p *proxy, _ *rand.Rand) string { p.blackhole(); return "open connections get no answer for ever" })},
	{name: "deliveries-doubled", weight: 2, inject: duplicateNotifications},
	{name: "operator-deletes", weight: 1, inject: tamperAllQueues(deletePending)},
	{name: "operator-archives", weight: 1, inject: tamperAllQueues(archivePending)},
	{name: "operator-runs-letters", weight: 1, inject: tamperAllQueues(runArchived)},
	{name: "remote-kill", weight: 2, inject: remoteSignal(syscall.SIGKILL)},
	{name: "remote-freeze", weight: 2, inject: remoteSignal(syscall.SIGSTOP)},
	{name: "operator-deletes-letters", weight: 1, inject: tamperAllQueues(deleteArchived)},
}

// parseFaults returns the faults named in a list; for an empty list, all that a schedule
// draws.
func parseFaults(list string) (out []fault, err error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.onlyByName }), nil
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

func workerKill(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d, SIGKILL", i), a.fleet.killOne(i)
}

func allWorkersKill(_ context.Context, a *testbed, _ *rand.Rand) (string, error) {
	return "SIGKILL", a.fleet.kill()
}

// workerFailpoint replaces a worker by one that kills itself at some point.
func workerFailpoint(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	points := []string{
		failpoint.Point(failpoint.NotifyBefore, failpoint.Task), failpoint.Point(failpoint.NotifyAfter, failpoint.Task),
		failpoint.Point(failpoint.CallBefore, failpoint.Executor), failpoint.Point(failpoint.CallAfter, failpoint.Executor),
	}
	for _, m := range []failpoint.Moment{failpoint.JournalBefore, failpoint.JournalAfter} {
		for _, what := range []string{failpoint.Open, failpoint.AdvanceNotification, failpoint.Sequence, failpoint.MarkLost, failpoint.Breaker, failpoint.BreakerProbes, failpoint.BreakerTenantReceipt,
			failpoint.LeaseClaim, failpoint.LeaseExtension, failpoint.LeaseEnd, failpoint.UniqueJob} {
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

func workerFreeze(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d, SIGSTOP", i), a.fleet.freeze(i)
}

func workerRestart(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d, SIGTERM", i), a.fleet.workerAt(i).stop()
}

// clockStep sets the clock of one worker, always the same one, some seconds off.
func clockStep(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	offset := time.Duration(rng.IntN(10001)-5000) * time.Millisecond
	_, err := a.fleet.workerAt(0).ask(ctx, worker.Command{Do: worker.Clock, Offset: offset})
	if errors.Is(err, errWorkerEnded) {
		err = nil // it was dead already
	}
	return fmt.Sprintf("worker 0, %s", offset), err
}

func bothKill(_ context.Context, a *testbed, _ *rand.Rand) (string, error) {
	if err := a.redis.Kill(); err != nil {
		return "", err
	}
	return "SIGKILL to Postgres and Redis", a.postgres.Kill()
}

// network disturbs the connections to one of the servers.
func network(degrade func(*proxy, *rand.Rand) string) func(context.Context, *testbed, *rand.Rand) (string, error) {
	return func(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
		name := []string{"postgres", "redis", "escrow", jobsProxy}[rng.IntN(4)]
		detail := degrade(a.proxies[name], rng)
		return "to " + name + " " + detail, nil
	}
}

func restoreNetwork(_ context.Context, a *testbed) error {
	for _, p := range a.proxies {
		p.setMode(modePass, 0)
	}
	return nil
}

// duplicateNotifications enqueues notifications that Recourse did not send, for runs of any state.
func duplicateNotifications(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	rows, err := a.db.QueryContext(ctx, `SELECT id, queue, family, notification_number FROM recourse.runs ORDER BY id DESC LIMIT 200`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id, queue, family string
		var notification int
		if err := rows.Scan(&id, &queue, &family, &notification); err != nil {
			return "", err
		}
		task := asynq.NewTask(family, []byte(id))
		for range 2 {
			n++
			if _, err := a.asynqClient.EnqueueContext(ctx, task, asynq.Queue(queue), asynq.TaskID(fmt.Sprintf("%s.%d", id, notification+100+rng.IntN(1<<20)))); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%d notifications", n), rows.Err()
}
