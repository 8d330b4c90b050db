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
//   - Once a brake is pulled no claim of its target begins, in any process, but for one
//     probe a second; what is parked needs no bell and is let go in order, and
//     while it is a crowd it spends nothing.
//
// The package imports asynq, go-redis, zap, OpenTelemetry's API, retrypolicy, receipts and internal/failpoint. It MUST NOT
// know of SQL, of settlements and money's rules, or of any face.
package background
