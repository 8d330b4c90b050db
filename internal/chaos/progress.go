package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
)

// snapshot is the state of the live runs at one moment.
type snapshot struct {
	runs  []string
	heads []int64
}

// snapshot omits the runs that were unreadable: a process reads such a run again only after
// a minute. It omits remote runs too: they wait for remote workers, which are dead or frozen at times. And it omits those whose
// call was accepted: they wait for the escrow service, and what it refuses it has to say twice. One of which a person
// found that nothing was executed waits until its next lookup was due.
func (a *testbed) snapshot(ctx context.Context) (snapshot, error) {
	var s snapshot
	rows, err := a.db.QueryContext(ctx, `SELECT r.id, c.last_seq FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
		WHERE r.live AND NOT r.remote AND r.reason <> 'accepted' AND r.error_type <> 'http.accepted' AND NOT r.id = ANY($1::uuid[])`, pq.Array(a.unreadableRuns))
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

// timePerRun is how long each of many runs may take, one after the other.
const timePerRun = 200 * time.Millisecond

// awaitProgress waits until every run of a snapshot has progressed or ended. It returns how many
// have not when no run has for as long as limit, or when timePerRun of all is over: so a slow machine
// fails nothing, and a stuck run is found while others progress. Runs that wait for a person behind a
// circuit breaker are not counted: see pausedRuns.
func (a *testbed) awaitProgress(ctx context.Context, s snapshot, limit time.Duration) (stuck int, err error) {
	began, least := time.Now(), len(s.runs)+1
	last, most := began, 2*limit+time.Duration(len(s.runs))*timePerRun
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
			wait, err := a.pausedRuns(ctx, s.runs, s.heads)
			if err != nil || wait == 0 {
				return stuck, err
			}
			led, err := a.breakersLed(ctx)
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

// maxDescribed is how many runs describe describes.
const maxDescribed = 5

const unmovedSQL = `SELECT r.id, r.tenant FROM unnest($1::uuid[], $2::bigint[]) AS t(id, head) JOIN recourse.runs r ON r.id = t.id JOIN recourse.cases c ON c.id = r.case_id
	WHERE r.live AND c.last_seq = t.head ORDER BY r.id LIMIT $3`

// describe returns the status of some runs of a snapshot that have not progressed, for the person who reads why.
func (s snapshot) describe(ctx context.Context, a *testbed) (out []string, err error) {
	rows, err := a.db.QueryContext(ctx, unmovedSQL, pq.Array(s.runs), pq.Array(s.heads), maxDescribed)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, tenant string
		if err := rows.Scan(&id, &tenant); err != nil {
			return nil, err
		}
		run, err := receipts.ParseRunID(id)
		if err != nil {
			return nil, err
		}
		status, err := a.operatorService.Status(ctx, tenant, run)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(status)
		if err != nil {
			return nil, err
		}
		out = append(out, string(text))
	}
	return out, rows.Err()
}

// minPausedRuns is the number of paused runs from which a failure of all may be an outage: the default of
// circuit.Rule.FewPaused.
const minPausedRuns = 10

const pausedSQL = `SELECT count(*) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id LEFT JOIN unnest($1::uuid[], $2::bigint[]) AS t(id, head) ON r.id = t.id
	WHERE r.live AND r.state IN ('pending', 'scheduled') AND r.attempt_count > 0 AND r.target = ANY($3) AND ($1::uuid[] IS NULL OR c.last_seq = t.head)`

// pausedRuns counts the live runs, or those of a snapshot without progress, that failed before and
// wait, at least minPausedRuns together, behind a circuit breaker that opened by itself. Without a new case
// they can't be distinguished from an outage: the product raises an alarm, and a person decides. A
// run that was never called is not counted.
func (a *testbed) pausedRuns(ctx context.Context, runs []string, heads []int64) (n int, err error) {
	open, err := a.autoOpenedBreakers(ctx)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	return n, a.db.QueryRowContext(ctx, pausedSQL, pq.Array(runs), pq.Array(heads), pq.Array(open)).Scan(&n)
}

// autoOpenedBreakers returns the targets of the circuit breakers that no person opened and behind
// which at least minPausedRuns runs wait.
func (a *testbed) autoOpenedBreakers(ctx context.Context) (targets []string, err error) {
	found, err := a.operatorService.As(postadjudication.AllTenants, "").Breakers.List(ctx)
	for _, b := range found {
		if b.State != circuit.Closed && !b.ByHand && b.Paused >= minPausedRuns {
			targets = append(targets, b.Target)
		}
	}
	return targets, err
}

// alarmDelay is how long a person waits after runs were paused behind a circuit breaker without a
// new case; the product raises its alarm after one minute.
const alarmDelay = 75 * time.Second

// awaitNoneLive waits until no run is live, and returns how many are when limit is over. When all
// live runs have waited behind circuit breakers for as long as alarm, and one of them was a probe
// meanwhile, a person releases the breakers.
func (a *testbed) awaitNoneLive(ctx context.Context, limit, alarm time.Duration) (live, released int, err error) {
	began, probed := time.Now(), int64(-1)
	for since := began; time.Since(began) < limit; sleep(ctx, 100*time.Millisecond) {
		if err := a.db.QueryRowContext(ctx, `SELECT count(*) FROM recourse.runs WHERE live`).Scan(&live); err != nil || live == 0 {
			return live, released, err
		}
		wait, err := a.pausedRuns(ctx, nil, nil)
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
			continue // without a probe the breaker is not released: the runs are stuck
		}
		n, err := a.releaseBreakers(ctx)
		if err != nil {
			return live, released, err
		}
		released, since, probed = released+n, time.Now(), -1
	}
	return live, released, nil
}

// pausedHeads returns the number of receipts of all cases with a live run: it rises when one of
// them is let through a circuit breaker as a probe.
func (a *testbed) pausedHeads(ctx context.Context) (sum int64, err error) {
	return sum, a.db.QueryRowContext(ctx, `SELECT coalesce(sum(c.last_seq), 0) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.live`).Scan(&sum)
}

// breakersLed reports whether each circuit breaker over all tenants that is not closed has a leader:
// a leader raises the version at least once a second.
func (a *testbed) breakersLed(ctx context.Context) (bool, error) {
	const unchangedSQL = `SELECT count(*) FROM recourse.circuit_breakers WHERE tenant = '' AND state <> 'closed' AND version = ANY($1)`
	var versions []int64
	if err := a.db.QueryRowContext(ctx, `SELECT coalesce(array_agg(version), '{}') FROM recourse.circuit_breakers WHERE tenant = '' AND state <> 'closed'`).Scan(pq.Array(&versions)); err != nil {
		return false, err
	}
	sleep(ctx, 5*time.Second)
	var same int
	err := a.db.QueryRowContext(ctx, unchangedSQL, pq.Array(versions)).Scan(&same)
	return err == nil && same == 0, err
}

// releaseBreakers closes the circuit breakers that opened by themselves, and returns their number.
func (a *testbed) releaseBreakers(ctx context.Context) (n int, err error) {
	targets, err := a.autoOpenedBreakers(ctx)
	for _, target := range targets {
		for state := circuit.Open; state != circuit.Closed && err == nil; {
			var b casestatus.Breaker
			if b, err = a.operatorService.As(postadjudication.AllTenants, operatorActor).Breakers.Release(ctx, target, operatorReason); errors.Is(err, postadjudication.ErrBreakerNotOpen) {
				err, b.State = nil, circuit.Closed
			}
			state = b.State
		}
		n++
	}
	return n, err
}
