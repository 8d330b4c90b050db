package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// workerFreezeClaimed replaces a worker by one that stands still when it has claimed: on
// record it calls, and it does not yet. What it wakes up with may be decided otherwise.
func workerFreezeClaimed(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
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

// thawClaimed wakes a worker that stands still where it was to, and ends one that never
// came there: it would stand still later, when nobody wakes it.
func thawClaimed(_ context.Context, a *arena) error {
	for i := range a.fleet.seats {
		if err := a.fleet.thaw(i); err != nil {
			return err
		}
	}
	return nil
}

// changed restarts a worker with other settings.
func (a *arena) changed(i int, change func(*worker.Settings)) error {
	if err := a.fleet.killOne(i); err != nil {
		return err
	}
	a.fleet.change(i, change)
	return a.fleet.start(i, "")
}

// workerOtherShards restarts a worker that serves another number of queues.
func workerOtherShards(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
	i, n := rng.IntN(len(a.fleet.seats)), []int{1, 3, 4}[rng.IntN(3)]
	return fmt.Sprintf("worker %d, %d shards", i, n), a.changed(i, func(s *worker.Settings) { s.Shards = n })
}

// workerWithoutFamily restarts a worker that does not know the plain family.
func workerWithoutFamily(_ context.Context, a *arena, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	return fmt.Sprintf("worker %d", i), a.changed(i, func(s *worker.Settings) { s.NoChores = true })
}

// sameSettings ends the workers whose settings were changed; others take their seats.
func sameSettings(_ context.Context, a *arena) error {
	for i := range a.fleet.seats {
		if s := a.fleet.settings(i); s.Shards == 0 && !s.NoChores {
			continue
		}
		if err := a.fleet.killOne(i); err != nil {
			return err
		}
		a.fleet.change(i, func(s *worker.Settings) { s.Shards, s.NoChores = 0, false })
	}
	return nil
}

// spoilRows writes into some runs that wait what only a newer version can read.
func spoilRows(ctx context.Context, a *arena, rng *rand.Rand) (string, error) {
	n, most := 0, 1+rng.IntN(3)
	for range 200 { // few wait at any moment
		some, err := a.spoil(ctx, most-n)
		if n += some; err != nil || n == most {
			return fmt.Sprintf("%d runs", n), err
		}
		pause(ctx, 5*time.Millisecond)
	}
	return fmt.Sprintf("%d runs", n), nil
}

const spoilSQL = `WITH old AS (SELECT id, policy FROM recourse.runs WHERE state IN ('pending', 'scheduled') AND policy NOT LIKE '%future%'
	ORDER BY id DESC LIMIT $1 FOR UPDATE SKIP LOCKED)
	UPDATE recourse.runs r SET policy = '{"from":"the future"}' FROM old WHERE r.id = old.id RETURNING old.id, old.policy`

func (a *arena) spoil(ctx context.Context, most int) (n int, err error) {
	rows, err := a.db.QueryContext(ctx, spoilSQL, most)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var id, policy string
		if err := rows.Scan(&id, &policy); err != nil {
			return n, err
		}
		a.spoiled[id], a.unread = policy, append(a.unread, id)
	}
	return n, rows.Err()
}

// mendRows gives the spoiled runs what they had.
func mendRows(ctx context.Context, a *arena) error {
	var ids, policies []string
	for id, policy := range a.spoiled {
		ids, policies = append(ids, id), append(policies, policy)
	}
	for ctx.Err() == nil {
		_, err := a.db.ExecContext(ctx, `UPDATE recourse.runs r SET policy = t.policy FROM unnest($1::uuid[], $2::text[]) AS t(id, policy) WHERE r.id = t.id`,
			pq.Array(ids), pq.Array(policies))
		if err == nil {
			clear(a.spoiled)
			return nil
		}
		pause(ctx, 200*time.Millisecond) // Postgres may be away
	}
	return ctx.Err()
}

// bound is by how much the clocks of machines that work may differ.
const bound = time.Second

// setClock sets the clock of a worker, and of those who come to its seat.
func (a *arena) setClock(ctx context.Context, i int, offset time.Duration) error {
	a.fleet.change(i, func(s *worker.Settings) { s.ClockOffset = offset })
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := a.fleet.at(i).ask(limited, worker.Command{Do: worker.Clock, Offset: offset})
	if err == errGone || limited.Err() != nil {
		err = nil // it is dead or frozen
	}
	return err
}

// clocksDiffer gives every worker a clock of its own, within the bound of each other.
func clocksDiffer(ctx context.Context, a *arena, rng *rand.Rand) (string, error) {
	var all []string
	for i := range a.fleet.seats {
		offset := time.Duration(rng.Int64N(int64(bound*9/10))) - bound*9/20
		all = append(all, offset.Round(time.Millisecond).String())
		if err := a.setClock(ctx, i, offset); err != nil {
			return "", err
		}
	}
	return strings.Join(all, ", "), nil
}

// clockBeyond sets the clock of one worker far off: it must call nobody.
func clockBeyond(ctx context.Context, a *arena, rng *rand.Rand) (string, error) {
	i := rng.IntN(len(a.fleet.seats))
	offset := 2*bound + time.Duration(rng.Int64N(int64(time.Hour)))
	if rng.IntN(2) == 0 {
		offset = -offset
	}
	if err := a.setClock(ctx, i, offset); err != nil {
		return "", err
	}
	a.barred = append(a.barred, span{seat: a.fleet.settings(i).Name + ".", from: time.Now().Add(noticed)})
	return fmt.Sprintf("worker %d, %s", i, offset.Round(time.Second)), nil
}

// noticed is after how long a worker has noticed that its clock is far off, and what it
// had claimed before has been called.
const noticed = 3 * time.Second

// span is when the worker of a seat must call nobody.
type span struct {
	seat     string
	from, to time.Time
}

// clocksRight sets the clocks that are far off right.
func clocksRight(ctx context.Context, a *arena) error {
	for i := range a.barred {
		if a.barred[i].to.IsZero() {
			a.barred[i].to = time.Now()
		}
	}
	for i := range a.fleet.seats {
		if offset := a.fleet.settings(i).ClockOffset; offset.Abs() > bound {
			if err := a.setClock(ctx, i, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
