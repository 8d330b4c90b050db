package rig

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// StoredWaits waits for what is in the database, of all tenants.
type StoredWaits struct{ Stored }

// WaitNoneLive waits until no run will be executed again by itself.
func (w StoredWaits) WaitNoneLive() {
	w.t.Helper()
	w.query("no run is live", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE live)`)
}

// WaitRuns waits until n runs are as f says.
func (w StoredWaits) WaitRuns(n int, f Runs) {
	w.t.Helper()
	w.Wait(fmt.Sprintf("%d runs are %+v", n, f), func() bool { return w.CountRuns(f) == n })
}

// WaitNoneRunning waits until no run is in an attempt.
func (w StoredWaits) WaitNoneRunning() {
	w.t.Helper()
	w.WaitRuns(0, Runs{State: background.Running})
}

// WaitAllCalled waits until every run had an attempt, and none is in one.
func (w StoredWaits) WaitAllCalled() {
	w.t.Helper()
	w.query("every run was called", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE state IN ('pending', 'running'))`)
}

// WaitPaused waits until the only run is due, and not executed.
func (w StoredWaits) WaitPaused() {
	w.t.Helper()
	w.query("the run is paused", `SELECT state = 'scheduled' AND due_at < now() FROM recourse.runs`)
}

// WaitDueSince waits until a run has been due for a time.
func (w StoredWaits) WaitDueSince(run background.RunID, dueFor time.Duration) {
	w.t.Helper()
	w.query("the run is due for "+dueFor.String(), `SELECT clock_timestamp() > due_at + $2 * interval '1 s' FROM recourse.runs WHERE id = $1`, run.String(), dueFor.Seconds())
}

// WaitNoCallOut waits until the only run has no outstanding call.
func (w StoredWaits) WaitNoCallOut() {
	w.t.Helper()
	w.query("no call is outstanding", `SELECT outstanding_calls IS NULL FROM recourse.runs`)
}

// WaitCases waits until n cases are as f says.
func (w StoredWaits) WaitCases(n int, f Cases) {
	w.t.Helper()
	w.Wait(fmt.Sprintf("%d cases are %+v", n, f), func() bool { return w.CountCases(f) == n })
}

// WaitBreached waits until the only escrow is breached by an amount.
func (w StoredWaits) WaitBreached(minor int64) {
	w.t.Helper()
	w.query(fmt.Sprintf("the escrow is breached by %d", minor), `SELECT breached = $1 FROM recourse.escrows`, minor)
}

// WaitDeltasFolded waits until all deltas are in the sums of their escrows.
func (w StoredWaits) WaitDeltasFolded() {
	w.t.Helper()
	w.Wait("the deltas are folded", func() bool { return w.CountRows("escrow_deltas") == 0 })
}

// WaitBreakerOpens waits until a circuit breaker is not closed.
func (w StoredWaits) WaitBreakerOpens() {
	w.t.Helper()
	w.query("a circuit breaker is not closed", `SELECT EXISTS (SELECT FROM recourse.circuit_breakers WHERE state <> 'closed')`)
}

// WaitBreakersClosed waits until all circuit breakers are closed.
func (w StoredWaits) WaitBreakersClosed() {
	w.t.Helper()
	w.query("the circuit breakers are closed", `SELECT NOT EXISTS (SELECT FROM recourse.circuit_breakers WHERE state <> 'closed')`)
}

// WaitBreakerRecorded waits until the trails of n tenants record as many closings as openings.
func (w StoredWaits) WaitBreakerRecorded(n int) {
	w.t.Helper()
	w.query("the trails record opening and closing", `SELECT count(*) = $1 FROM recourse.circuit_breakers WHERE tenant <> '' AND recorded_opening > 0 AND recorded_closing = recorded_opening`, n)
}

// WaitAsked waits until the escrow service was asked n times, at least, about one run.
func (w StoredWaits) WaitAsked(n int) {
	w.t.Helper()
	w.Wait(fmt.Sprintf("a run is asked about %d times", n), func() bool { return w.TimesAsked() >= n })
}

// WaitAskedAbout waits until the escrow service was asked about a run n times, at least.
func (w StoredWaits) WaitAskedAbout(run background.RunID, n int) {
	w.t.Helper()
	w.Wait(fmt.Sprintf("the run is asked about %d times", n), func() bool { return w.TimesAskedAbout(run) >= n })
}

// WaitLookups waits until lookups are remembered of n runs.
func (w StoredWaits) WaitLookups(n int) {
	w.t.Helper()
	w.Wait(fmt.Sprintf("%d runs were asked about", n), func() bool { return w.CountRows("lookups") == n })
}

// WaitLookupWaits waits until the only lookup waits for a person, for a reason.
func (w StoredWaits) WaitLookupWaits(reason string) {
	w.t.Helper()
	w.query("it waits for a person: "+reason, `SELECT coalesce((SELECT waits_for = $1 FROM recourse.lookups), false)`, reason)
}

// WaitRetentionEnds waits until the end of a letter's retention is announced.
func (w StoredWaits) WaitRetentionEnds() {
	w.t.Helper()
	w.query("the end is announced", `SELECT EXISTS (SELECT FROM recourse.annotations WHERE ends_at IS NOT NULL)`)
}

// WaitSessionCalls waits until a session says that it calls a target.
func (w StoredWaits) WaitSessionCalls(target string) {
	w.t.Helper()
	w.query("a session calls "+target, `SELECT EXISTS (SELECT FROM recourse.sessions WHERE $1 = ANY (targets))`, target)
}

// WaitClocksMeasured waits until n sessions have measured their clocks.
func (w StoredWaits) WaitClocksMeasured(n int) {
	w.t.Helper()
	w.query("the clocks are measured", `SELECT count(*) = $1 FROM recourse.sessions WHERE abs(clock_offset_us) < 500000`, n)
}

// WaitBarredByServers waits until a session claims nothing because of its servers, or may claim.
func (w StoredWaits) WaitBarredByServers(barred bool) {
	w.t.Helper()
	w.query(fmt.Sprintf("a session is barred by its servers: %t", barred), `SELECT EXISTS (SELECT FROM recourse.sessions WHERE (barred = $1) = $2)`, background.BlockedByServers, barred)
}

// WaitPlansSettled waits until the outcome of every item of the ended plans is known.
func (w StoredWaits) WaitPlansSettled() {
	w.t.Helper()
	w.query("the plans are settled", `SELECT bool_and(settled) FROM recourse.bulks`)
}

// WaitProjected waits until the index of dead letters has all events.
func (w StoredWaits) WaitProjected() {
	w.t.Helper()
	w.query("all is projected", `SELECT (SELECT max(last) FROM recourse.event_log) = last FROM recourse.projected WHERE name = 'letters'`)
}

// WaitBlockedOnAdvisory waits until somebody waits for an advisory lock.
func (w StoredWaits) WaitBlockedOnAdvisory() {
	w.t.Helper()
	w.query("somebody waits for an advisory lock", `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`)
}

// WaitBlocked waits until n connections, at least, wait for a lock.
func (w StoredWaits) WaitBlocked(n int) {
	w.t.Helper()
	w.Wait(fmt.Sprintf("%d connections wait for a lock", n), func() bool { return w.Blocked() >= n })
}

// WaitBlockedOn waits until a statement waits for the lock of a table.
func (w StoredWaits) WaitBlockedOn(table string) {
	w.t.Helper()
	w.query("a statement waits for the lock of "+table, `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = ('recourse.' || $1)::regclass AND NOT granted)`, table)
}

// Wait waits for a condition that the test names.
func (w StoredWaits) Wait(what string, ok func() bool) {
	w.t.Helper()
	poll.Until(w.t, what, ok)
}

// query waits until a query returns true.
func (w StoredWaits) query(what, query string, args ...any) {
	w.t.Helper()
	w.Wait(what, func() bool { return w.QueryBool(query, args...) })
}
