// Package settlement decides the state of a case and its money: from the present state
// and a fact it computes the next state, and the change of the sum that the escrow has
// committed.
//
//	none, pending ──adjudicated──▶ approved-for-settlement ◀──────────────────────┐
//	                                    │ attempt-started                         │
//	                                    ▼                                         │
//	                               in-progress ──executed──▶ settled | refunded   │
//	                                 │  │  │    (the ends)                        │
//	                   dead-lettered │  │  └─executed in part──▶ partially-settled ┤ (re-)adjudicated
//	                                 ▼  └─cancelled──▶ review-needed ─────────────┤ (re-)adjudicated
//	                            dispute-ready ────────────────────────────────────┘ forked, re-adjudicated
//
// A payment under the key of an older generation changes no status: it is taken from the
// present generation's reservation as far as that goes, and that generation is not
// attempted again ([State.Underfunded]). Its dead letter is superseded by a higher
// generation, or closed by a finding, which leaves the case partially-settled.
//
// The reservation of a dead letter outlives a cancel of its fork, and a finding that closes
// the letter ([Event.KeepReserved]): it is freed by hand ([Freed]), which takes two people, or
// taken over by a higher generation. The same holds for tenants where one person is enough: else
// the effect of a cancel would depend on who may ask for it, which its receipt does not say.
//
// A payment beyond what was decided ([Effect.Excess]) is a breach, whatever its source. A payment
// that is found after its reservation was freed is no breach while it is no more than was decided.
//
// A payment can come back ([Returned]), in parts, and never more than was paid. It corrects what was paid beyond what
// was decided first. Beyond that the case becomes dispute-ready, unless a run carries out a decision or a dead letter
// waits already: no attempt begins for a decision that was carried out before ([State.Underfunded]), and a higher
// generation may follow.
//
// All rules are one table in table.go, applied by [Apply]. A pair of status and fact
// that the table does not list is [*Refused]. A settled or refunded case stays so, unless a payment comes
// back. Payments and returns are recorded at every status, since refusing to record them would not undo them.
//
// Amounts are int64 minor units of one currency per escrow, at most 2^53-1, so that
// they survive JSON; sums over cases are a [Sum], which has more room. Reserved, released and refunded of a case, less what came back, change together by
// exactly what [Effect] reports for its escrow: a sum kept per escrow from effects
// alone equals the sum over its cases.
//
// The package is pure: it imports the standard library only, and knows no clock,
// store, log or network. It must not know of runs and receipts. Of attempts and
// retries it knows only their facts.
package settlement
