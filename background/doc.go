// Package background runs tasks that must not get lost: it delivers them, counts
// and times their attempts, decides about retries, and has every step recorded
// before it acts on it.
//
// The journal (Ledger, and each Family's Record) holds what happened. Redis, by
// way of asynq, only rings: a task in Redis is a bell that names a run. A bell may
// ring twice, late, or get lost with all of Redis; what it leads to is decided by
// the claim alone, which moves a run from waiting to running under a new token.
//
//	           ┌────────────────────── wait, in place up to 1s ◀──────┐
//	           ▼                                                      │
//	bell ─▶ slot ─▶ claim ─▶ call ─▶ decide ─▶ record ─┬─▶ scheduled ─┴─▶ longer: back to asynq
//	                                                   ├─▶ succeeded, cancelled: acknowledged
//	                                                   └─▶ dead-lettered: archived as a mirror
//
// Promises:
//
//   - The handler is called only after its attempt is on record as started, and at
//     most once for each attempt.
//   - No attempt starts before its time.
//   - An outcome that cannot be recorded is held and tried until it can, while
//     nothing new is claimed (Healthy); only Close or death gives it up.
//   - An attempt that ends without a clear answer ends as unknown, never as failed,
//     and no letter is opened for it before Family.Lookup was asked.
//   - A live run that is due and has no bell gets a new one.
//   - Once a circuit breaker is open no claim of its target begins, in any process, but
//     for what its leader lets through; what is paused needs no notification, is notified
//     again when the breaker closes, and spends nothing while no answer shows that the
//     target works.
//
// A circuit breaker is of a target over all tenants, for one tenant's traffic is too thin
// to tell; people may open one for a single tenant too. Each process judges by its own
// attempts (failureWindow) and opens it for all, through one row and its version. While it
// is open one process leads: it lets runs through (probing), naming them in the row, which
// the claim's guard reads. Whoever steps the version leads; a leader that steps no more is
// replaced. failureWindow and probing are pure, and a model is their test.
//
// The receipts of a breaker over all tenants belong to no tenant: each move is in the
// trail of the tenant "*", in the commit of the move. Besides, each tenant sees its own
// evidence: before a notification of its run is acknowledged because the breaker pauses
// the run, or a probe of it is made, its own trail says so, once an opening; and once the
// breaker is closed, that it is over.
//
// The package imports asynq, go-redis, zap, golang.org/x/sys/unix, OpenTelemetry's API, retrypolicy, receipts and internal/failpoint. It MUST NOT
// know of SQL, of settlements and money's rules, or of any face.
package background
