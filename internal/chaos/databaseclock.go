package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
)

// maxClockAhead is how far the database's clock is set ahead at most: further than the keys of the service that soon
// forgets them live. Whatever is due by the clock that was ahead waits for as long once it is right.
const maxClockAhead = 20 * time.Second

// databaseClockAhead sets the clock of the database ahead, as a failover to a server whose clock is wrong does.
func databaseClockAhead(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	ahead := 1500*time.Millisecond + time.Duration(rng.Int64N(int64(maxClockAhead-1500*time.Millisecond))).Truncate(time.Millisecond)
	a.clockSettings = append(a.clockSettings, remote.ClockSetting{From: time.Now(), Ahead: ahead}) // also if the statement has no answer
	return fmt.Sprintf("ahead by %s", ahead), localpg.SetClock(ctx, a.db, ahead)
}

// databaseClockRight sets it right.
func databaseClockRight(ctx context.Context, a *testbed) error {
	if err := a.restorePostgres(ctx); err != nil { // another fault of the same time may have ended it
		return err
	}
	for ; ctx.Err() == nil; sleep(ctx, 200*time.Millisecond) {
		if localpg.SetClock(ctx, a.db, 0) != nil {
			continue // Postgres may still be recovering
		}
		until := time.Now().Add(a.clockDelay)
		for i := range a.clockSettings {
			if s := &a.clockSettings[i]; s.Until.IsZero() {
				s.Until = until
			}
		}
		return nil
	}
	return ctx.Err()
}

// clockDelay returns for how long a process may go by a clock that was set since: a session without a heartbeat for
// lostAfter claims nothing.
func clockDelay(lostAfter time.Duration) time.Duration { return lostAfter + 5*time.Second }

// withoutCancel is after how many seconds without an order to cancel none is expected.
const withoutCancel = 3

const liveRemoteSQL = `SELECT id FROM recourse.runs WHERE live AND remote AND family = 'settlement' ORDER BY id`

// cancelKept has a person cancel the orders that say that no worker gets them before their operation key is surely
// forgotten, a day later: the age of a key from before the clock was set right is unknown. It returns when
// all others have ended or wait for something else, and the clock has passed what it showed.
func cancelKept(ctx context.Context, a *testbed, s *schedule) error {
	if len(a.clockSettings) == 0 || a.jobs == nil {
		return nil
	}
	cancelled, last := 0, a.clockSettings[len(a.clockSettings)-1]
	defer func() { s.logf("%d orders whose operation keys are of unknown age were cancelled", cancelled) }()
	for none := 0; none < withoutCancel && ctx.Err() == nil; sleep(ctx, time.Second) {
		rows, err := runIDs(ctx, a.db, liveRemoteSQL)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		if none++; time.Now().Before(last.Until.Add(last.Ahead)) {
			none = 0
		}
		for _, id := range rows {
			status, err := a.operatorService.Status(ctx, tenant, id)
			if err != nil {
				return err
			}
			if status.WaitsFor != casestatus.WaitsForKey {
				continue
			}
			if _, err := a.operatorService.As(tenant, operatorActor).Cases.Cancel(ctx, id, operatorReason); err == nil {
				cancelled++
			} else if !isRefusal(err) {
				return err
			}
			none = 0
		}
	}
	return ctx.Err()
}

func runIDs(ctx context.Context, db *sql.DB, query string) (out []receipts.RunID, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		id, err := receipts.ParseRunID(text)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, rows.Err()
}
