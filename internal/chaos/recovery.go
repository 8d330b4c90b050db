package main

import (
	"context"
	"errors"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
)

// standing is where live runs stood at one moment.
type standing struct {
	runs  []string
	heads []int64
}

// standing leaves out the runs that nobody could read: who can't read one looks at it
// again after a minute.
func (a *arena) standing(ctx context.Context) (standing, error) {
	var s standing
	rows, err := a.db.QueryContext(ctx, `SELECT r.id, c.last_seq FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
		WHERE r.live AND NOT r.id = ANY($1::uuid[])`, pq.Array(a.unread))
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var run string
		var head int64
		if err := rows.Scan(&run, &head); err != nil {
			return s, err
		}
		s.runs, s.heads = append(s.runs, run), append(s.heads, head)
	}
	return s, rows.Err()
}

const stuckSQL = `SELECT count(*) FROM unnest($1::uuid[], $2::bigint[]) AS t(id, head) JOIN recourse.runs r ON r.id = t.id JOIN recourse.cases c ON c.id = r.case_id
	WHERE r.live AND c.last_seq = t.head`

// perRun is how long each of many runs may take to be moved on, one after the other.
const perRun = 200 * time.Millisecond

// moved waits until every run of a standing has moved on or ended. It gives up when limit is
// over since the last of them did, or longer than they all may take, and tells how many have
// not: the pace is the machine's, and what stands still while others go on is found all the same.
// Runs that wait for a person behind a circuit breaker are none of them: see paused.
func (a *arena) moved(ctx context.Context, s standing, limit time.Duration) (stuck int, err error) {
	began, least := time.Now(), len(s.runs)+1
	last, most := began, 2*limit+time.Duration(len(s.runs))*perRun
	for {
		err := a.db.QueryRowContext(ctx, stuckSQL, pq.Array(s.runs), pq.Array(s.heads)).Scan(&stuck)
		if err == nil && stuck < least {
			last, least = time.Now(), stuck
		}
		if err == nil && stuck == 0 || err != nil && time.Since(began) > most {
			return stuck, err
		}
		if time.Since(last) > limit || time.Since(began) > most {
			if err != nil {
				return stuck, err
			}
			wait, err := a.paused(ctx, s.runs, s.heads)
			if err != nil || wait == 0 {
				return stuck, err
			}
			led, err := a.led(ctx)
			if err != nil || !led {
				return stuck, err
			}
			return stuck - wait, nil
		}
		select {
		case <-ctx.Done():
			return stuck, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// fewest is how many paused runs that all fail may be the escrow service's fault: the default
// of background.BreakerRule.Few.
const fewest = 10

const pausedSQL = `SELECT count(*) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id LEFT JOIN unnest($1::uuid[], $2::bigint[]) AS t(id, head) ON r.id = t.id
	WHERE r.live AND r.state IN ('pending', 'scheduled') AND r.attempt_count > 0 AND r.target = ANY($3) AND ($1::uuid[] IS NULL OR c.last_seq = t.head)`

// paused counts the live runs, or those of a standing that have not moved, that failed before
// and wait with at least fewest behind a circuit breaker that opened by itself. With no new case
// beside them nothing tells them from an outage: the product raises an alarm, and a person
// decides. A run that was never called is none of them.
func (a *arena) paused(ctx context.Context, runs []string, heads []int64) (n int, err error) {
	open, err := a.openByThemselves(ctx)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	return n, a.db.QueryRowContext(ctx, pausedSQL, pq.Array(runs), pq.Array(heads), pq.Array(open)).Scan(&n)
}

// openByThemselves lists the targets of the circuit breakers that no person opened, and behind
// which at least fewest wait.
func (a *arena) openByThemselves(ctx context.Context) (targets []string, err error) {
	found, err := a.desk.Brakes(ctx, postadjudication.AllTenants)
	for _, b := range found {
		if b.State != background.BreakerClosed && !b.ByHand && b.Paused >= fewest {
			targets = append(targets, b.Target)
		}
	}
	return targets, err
}

// alarmAfter is how long a person lets the alarm stand that runs wait behind a circuit breaker
// with no new case beside them; the product raises it after one minute.
const alarmAfter = 75 * time.Second

// quiet waits until no run is live, and tells how many are when limit is over. When all that
// are left have waited behind circuit breakers for as long as the alarm takes, and one of them
// has probed meanwhile, a person releases those.
func (a *arena) quiet(ctx context.Context, limit, alarm time.Duration) (live, released int, err error) {
	began, probed := time.Now(), int64(-1)
	for since := began; time.Since(began) < limit; pause(ctx, 100*time.Millisecond) {
		if err := a.db.QueryRowContext(ctx, `SELECT count(*) FROM recourse.runs WHERE live`).Scan(&live); err != nil || live == 0 {
			return live, released, err
		}
		wait, err := a.paused(ctx, nil, nil)
		if err != nil {
			return live, released, err
		}
		if wait < live {
			since, probed = time.Now(), -1
		}
		heads, err := a.pausedHeads(ctx)
		if err != nil {
			return live, released, err
		}
		if probed < 0 {
			probed = heads
		}
		if time.Since(since) < alarm || heads == probed {
			continue // a breaker behind which nothing probes is not released: what waits there is stuck
		}
		n, err := a.release(ctx)
		if err != nil {
			return live, released, err
		}
		released, since, probed = released+n, time.Now(), -1
	}
	return live, released, nil
}

// pausedHeads adds up the receipts of all cases with a live run: it rises when one of them is
// let through a circuit breaker to probe.
func (a *arena) pausedHeads(ctx context.Context) (sum int64, err error) {
	return sum, a.db.QueryRowContext(ctx, `SELECT coalesce(sum(c.last_seq), 0) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.live`).Scan(&sum)
}

// led reports whether some process leads each circuit breaker over all tenants that is not closed:
// it shows itself at least once a second, which raises the version.
func (a *arena) led(ctx context.Context) (bool, error) {
	const unshown = `SELECT count(*) FROM recourse.brakes WHERE tenant = '' AND state <> 'closed' AND version = ANY($1)`
	var versions []int64
	if err := a.db.QueryRowContext(ctx, `SELECT coalesce(array_agg(version), '{}') FROM recourse.brakes WHERE tenant = '' AND state <> 'closed'`).Scan(pq.Array(&versions)); err != nil {
		return false, err
	}
	pause(ctx, 5*time.Second)
	var same int
	err := a.db.QueryRowContext(ctx, unshown, pq.Array(versions)).Scan(&same)
	return err == nil && same == 0, err
}

// release closes the circuit breakers that opened by themselves, and tells how many they were.
func (a *arena) release(ctx context.Context) (n int, err error) {
	targets, err := a.openByThemselves(ctx)
	for _, target := range targets {
		for state := background.BreakerOpen; state != background.BreakerClosed && err == nil; {
			var b postadjudication.Brake
			if b, err = a.desk.ReleaseBrake(ctx, postadjudication.AllTenants, target, person, why); errors.Is(err, postadjudication.ErrBrakeReleased) {
				err, b.State = nil, background.BreakerClosed
			}
			state = b.State
		}
		n++
	}
	return n, err
}
