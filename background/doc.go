// Package background runs tasks that must not get lost: it delivers them, counts
// and times their attempts, decides about retries, and has every step recorded
// before it acts on it.
//
// The journal (Store, and each Family's Record) holds what happened. An asynq task in
// Redis is only a notification: it names a run. A notification may arrive twice, late,
// or never. The claim alone decides what it leads to: it moves a run from waiting to
// running under a new token.
//
//	           ┌────────────────────── wait, in place up to 1s ◀──────┐
//	           ▼                                                      │
//	task ─▶ slot ─▶ claim ─▶ call ─▶ decide ─▶ record ─┬─▶ scheduled ─┴─▶ longer: back to asynq
//	                                                   ├─▶ succeeded, cancelled: acknowledged
//	                                                   └─▶ dead-lettered: archived in asynq
//
// Promises:
//
//   - The handler is called only after its attempt is on record as started, and at
//     most once for each attempt.
//   - No attempt starts before its time.
//   - An outcome that cannot be recorded yet is kept and retried until it is recorded.
//     Only Close or the end of the process drops it: then its attempt ends as interrupted.
//     While the journal answers no write, nothing new is claimed (Healthy). An outcome
//     with values that the journal cannot store makes its run a dead letter that states
//     them as text (ReasonUnrecordable).
//   - An attempt that ends without a clear answer ends as unknown, never as failed,
//     and no dead letter is opened for it before Family.Lookup answered.
//   - A live run that is due and has no notification gets a new one.
//   - While a circuit breaker is open, no process begins a claim of its target's runs,
//     except for the probes that the leader starts. A paused run needs no notification, gets one
//     when the breaker closes, and spends no budget while no answer shows that the
//     target works.
//
// Remote runs are not delivered: workers outside fetch them from their queue (Fetcher). The claim
// gives the worker a lease instead of naming a session. The worker answers, hands back, or extends
// its lease by heartbeats; when it is silent for the length of the lease, any process ends the
// attempt (leaseReaper). Decisions, transitions and receipts are those of deliveries. Remote runs
// need no Redis and no notification; only the task of their dead letter is archived in asynq. A
// circuit breaker that a person opened holds them too, and none opens by itself because of them.
//
//	Fetch ─▶ claim with a lease ─▶ Finish, HandBack ─▶ decide ─▶ record
//	              │ ▲ Extend
//	              └─┘ silent: leaseReaper ─▶ record
//
// A circuit breaker covers a target over all tenants, because one tenant has too little
// traffic to judge by. People may also open one for a single tenant. Each process judges by
// its own attempts (failureWindow) and opens the breaker for all processes, through one
// row and its version. While it is open, one process leads: it starts probes
// (probePolicy) and lists them in the row, which the claim's guard reads. The process that
// raises the version leads. A leader that stops raising it is replaced. failureWindow and
// probePolicy are pure; a model tests them. What opens a breaker must look like an outage: a
// target that fails often, and answers the rest, is called at the full rate.
//
// Each change of a breaker over all tenants is in the trail of the tenant "*", in the
// commit of the change. Each paused tenant also gets receipts in its own trail. The first
// is written once per opening, before a notification is acknowledged because the breaker
// pauses the run, or a probe of the run starts. The second is written after the breaker
// closed.
//
// It must not know SQL, settlements, the rules about money, the command line or the HTTP API.
package background
