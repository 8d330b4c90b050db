package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// smallTestbed has one worker. It is closed and removed at the end of the test.
func smallTestbed(t *testing.T) *testbed {
	t.Helper()
	a, err := openTestbed(t.Context(), options{workers: 1, lostAfter: lostAfter, inFlight: 4 * time.Second, keyLifetime: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(a.dir); err != nil {
			t.Error(err)
		}
	})
	return a
}

// A worker that was to stop itself at a point, and has not reached it, does not stop after
// everything is healed, whatever other faults it had.
func TestNoWorkerIsFrozenAfterHeal(t *testing.T) {
	t.Parallel()
	a := smallTestbed(t)
	before := a.fleet.workerAt(0)
	if err := errors.Join(a.fleet.killOne(0), a.fleet.start(0, "stop="+failpoint.Point(failpoint.CallBefore, failpoint.Executor)+":1000")); err != nil {
		t.Fatal(err)
	}
	a.fleet.expectFrozen(0)
	armed := a.fleet.workerAt(0)
	if err := errors.Join(a.fleet.freeze(0), thawClaimed(t.Context(), a), a.heal(t.Context())); err != nil {
		t.Fatal(err)
	}
	now := a.fleet.workerAt(0)
	if stopped, err := now.stopped(); now == before || now == armed || !now.alive() || stopped || err != nil {
		t.Errorf("the worker with the armed point continues: %t; is stopped: %t, %v", now == armed, stopped, err)
	}
}

// Cases that all fail, without new cases, wait behind a circuit breaker until a person releases it.
// Runs behind a breaker that a person opened do not wait for the alarm.
func TestWhatWaitsBehindACircuitBreakerIsReleasedByAPerson(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := smallTestbed(t)
	const n = 4 * minPausedRuns
	failing := make([]postadjudication.Adjudication, n)
	for i := range failing {
		failing[i] = drawAdjudication(rand.New(rand.NewPCG(1, uint64(i))), i)
		failing[i].Payload = json.RawMessage(`{"simulate":"retryable"}`)
	}
	if _, errs := a.operatorService.SubmitBatch(ctx, failing); errs[0] != nil {
		t.Fatal(errs[0])
	}
	var err error
	live := func() (n int) {
		if err := a.db.QueryRowContext(ctx, `SELECT count(*) FROM recourse.runs WHERE live`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for wait := 0; wait < minPausedRuns || wait < live(); sleep(limited, 50*time.Millisecond) {
		if wait, err = a.pausedRuns(limited, nil, nil); err != nil {
			t.Fatalf("%d of %d wait behind a circuit breaker: %v", wait, live(), err)
		}
	}
	if _, err := a.operatorService.As(postadjudication.AllTenants, operatorActor).Breakers.Open(ctx, escrow.DefaultTarget, operatorReason); err != nil {
		t.Fatal(err)
	}
	if wait, err := a.pausedRuns(ctx, nil, nil); err != nil || wait != 0 {
		t.Errorf("behind a circuit breaker that a person opened %d wait for one, %v", wait, err)
	}
	if _, err := a.operatorService.As(postadjudication.AllTenants, operatorActor).Breakers.Release(ctx, escrow.DefaultTarget, operatorReason); err != nil {
		t.Fatal(err)
	}
	if led, err := a.breakersLed(ctx); err != nil || !led {
		t.Errorf("nobody leads the circuit breaker, %v", err)
	}
	left, released, err := a.awaitNoneLive(ctx, time.Minute, time.Second)
	if err != nil || left != 0 || released == 0 {
		t.Errorf("%d are left, %d circuit breakers were released, %v", left, released, err)
	}
}
