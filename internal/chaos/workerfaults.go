package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// workerFreezeClaimed replaces a worker by one that stops itself after a claim and before the
// call. When it wakes, the run may have been decided otherwise.
func workerFreezeClaimed(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	point := failpoint.Point(failpoint.JournalAfter, string(receipts.AttemptStarted))
	if rng.IntN(2) == 0 {
		point = failpoint.Point(failpoint.CallBefore, failpoint.Executor)
	}
	point = fmt.Sprintf("stop=%s:%d", point, 1+rng.IntN(20))
	if err := a.fleet.killOne(i); err != nil {
		return "", err
	}
	if err := a.fleet.start(i, point); err != nil {
		return "", err
	}
	a.fleet.expectFrozen(i)
	return fmt.Sprintf("worker %d, %s", i, point), nil
}

// thawClaimed wakes a worker that has stopped itself, and kills one that has not: it would stop
// later, when nobody wakes it.
func thawClaimed(_ context.Context, a *testbed) error {
	for i := range a.fleet.seats {
		if err := a.fleet.thaw(i); err != nil {
			return err
		}
	}
	return nil
}

// changed restarts a worker with other settings.
func (a *testbed) changed(i int, change func(*worker.Settings)) error {
	if err := a.fleet.killOne(i); err != nil {
		return err
	}
	a.fleet.change(i, change)
	return a.fleet.start(i, "")
}

// workerOtherShards restarts a worker that serves another number of queues.
func workerOtherShards(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i, n := rng.IntN(len(a.fleet.seats)), []int{1, 3, 4}[rng.IntN(3)]
	return fmt.Sprintf("worker %d, %d shards", i, n), a.changed(i, func(s *worker.Settings) { s.Shards = n })
}

// workerWithoutFamily restarts a worker that does not know the plain family.
func workerWithoutFamily(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d", i), a.changed(i, func(s *worker.Settings) { s.NoPlainFamily = true })
}

// restoreSettings stops the workers whose settings were changed; others take their seats.
func restoreSettings(_ context.Context, a *testbed) error {
	for i := range a.fleet.seats {
		if s := a.fleet.settings(i); s.Shards == 0 && !s.NoPlainFamily {
			continue
		}
		if err := a.fleet.killOne(i); err != nil {
			return err
		}
		a.fleet.change(i, func(s *worker.Settings) { s.Shards, s.NoPlainFamily = 0, false })
	}
	return nil
}

// corruptRows makes some waiting runs readable only by a newer version.
func corruptRows(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	n, most := 0, 1+rng.IntN(3)
	for range 200 { // few wait at any moment
		some, err := a.corrupt(ctx, most-n)
		if n += some; err != nil || n == most {
			return fmt.Sprintf("%d runs", n), err
		}
		sleep(ctx, 5*time.Millisecond)
	}
	return fmt.Sprintf("%d runs", n), nil
}

const corruptSQL = `WITH old AS (SELECT id, policy FROM recourse.runs WHERE state IN ('pending', 'scheduled') AND policy NOT LIKE '%future%'
	ORDER BY id DESC LIMIT $1 FOR UPDATE SKIP LOCKED)
	UPDATE recourse.runs r SET policy = '{"from":"the future"}' FROM old WHERE r.id = old.id RETURNING old.id, old.policy`

func (a *testbed) corrupt(ctx context.Context, most int) (n int, err error) {
	rows, err := a.db.QueryContext(ctx, corruptSQL, most)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var id, policy string
		if err := rows.Scan(&id, &policy); err != nil {
			return n, err
		}
		a.originalPolicies[id], a.unreadableRuns = policy, append(a.unreadableRuns, id)
	}
	return n, rows.Err()
}

// restoreRows restores the policies of the unreadable runs.
func restoreRows(ctx context.Context, a *testbed) error {
	var ids, policies []string
	for id, policy := range a.originalPolicies {
		ids, policies = append(ids, id), append(policies, policy)
	}
	if err := a.restorePostgres(ctx); err != nil { // another fault of the same time may have ended it
		return err
	}
	for ctx.Err() == nil {
		_, err := a.db.ExecContext(ctx, `UPDATE recourse.runs r SET policy = t.policy FROM unnest($1::uuid[], $2::text[]) AS t(id, policy) WHERE r.id = t.id`,
			pq.Array(ids), pq.Array(policies))
		if err == nil {
			clear(a.originalPolicies)
			return nil
		}
		sleep(ctx, 200*time.Millisecond) // Postgres may be down
	}
	return ctx.Err()
}

// maxClockSkew is by how much the clocks of machines that work may differ.
const maxClockSkew = time.Second

// setClock sets the clock of a worker, and of its successors on the seat.
func (a *testbed) setClock(ctx context.Context, i int, offset time.Duration) error {
	a.fleet.change(i, func(s *worker.Settings) { s.ClockOffset = offset })
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := a.fleet.workerAt(i).ask(limited, worker.Command{Do: worker.Clock, Offset: offset})
	if errors.Is(err, errWorkerEnded) || limited.Err() != nil {
		err = nil // it is dead or frozen
	}
	return err
}

// clocksDiffer gives every worker a different clock, within maxClockSkew.
func clocksDiffer(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	var all []string
	for i := range a.fleet.seats {
		offset := time.Duration(rng.Int64N(int64(maxClockSkew*9/10))) - maxClockSkew*9/20
		all = append(all, offset.Round(time.Millisecond).String())
		if err := a.setClock(ctx, i, offset); err != nil {
			return "", err
		}
	}
	return strings.Join(all, ", "), nil
}

// clockFarOff sets the clock of one worker far off: it must make no calls.
func clockFarOff(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	offset := 2*maxClockSkew + time.Duration(rng.Int64N(int64(time.Hour)))
	if rng.IntN(2) == 0 {
		offset = -offset
	}
	if err := a.setClock(ctx, i, offset); err != nil {
		return "", err
	}
	a.clockFaults = append(a.clockFaults, clockFault{worker: a.fleet.settings(i).Name + ".", from: time.Now().Add(clockNoticeDelay)})
	return fmt.Sprintf("worker %d, %s", i, offset.Round(time.Second)), nil
}

// clockNoticeDelay is after how long a worker has noticed that its clock is far off, and has
// called what it had claimed before.
const clockNoticeDelay = 3 * time.Second

// clockFault is the time in which the worker of a seat must make no calls.
type clockFault struct {
	worker   string
	from, to time.Time
}

// clocksRestored corrects the clocks that are far off.
func clocksRestored(ctx context.Context, a *testbed) error {
	for i := range a.clockFaults {
		if a.clockFaults[i].to.IsZero() {
			a.clockFaults[i].to = time.Now()
		}
	}
	for i := range a.fleet.seats {
		if offset := a.fleet.settings(i).ClockOffset; offset.Abs() > maxClockSkew {
			if err := a.setClock(ctx, i, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
