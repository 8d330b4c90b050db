// Package settlement says what becomes of a case's money and standing: given where
// a case stands and what happened, where it stands next and what that does to the
// sum that its escrow has committed.
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
// A payment under the key of an older generation moves no case: it is taken from the
// present generation's reservation as far as that goes, and that generation is not
// tried any more ([State.Undercut]). Its dead letter is superseded by a higher
// generation, or closed by a finding, which leaves the case partially-settled.
//
// What a dead letter kept reserved outlives a cancel of its fork, and a finding that closes
// the letter ([Event.Kept]): it is freed by hand ([Freed]), which takes two people, or taken
// over by a higher generation. That is so where one person is enough as well: else what a
// cancel does would depend on who may ask for it, which no receipt of the cancel tells.
//
// Paid beyond what was decided ([Effect.Excess]) is a breach wherever it comes from. A payment
// that is found after its reservation was freed is none while it is no more than was decided.
//
// The whole of it is one table in table.go, applied by [Apply]. A pair of standing
// and fact that the table does not list is [*Refused]. What is settled or refunded
// stays so; yet a payment that happened is recorded wherever the case stands, since
// a fact about money is not undone by refusing to write it down.
//
// Amounts are int64 minor units of one currency per escrow, at most 2^53-1, so that
// they survive JSON. Reserved, released and refunded of a case change together by
// exactly what [Effect] reports for its escrow: a sum kept per escrow from effects
// alone equals the sum over its cases.
//
// The package is pure: it imports the standard library only, and knows no clock,
// store, log or network. It must not know of runs and receipts; of attempts and
// retries it knows the facts that they leave, and not how they are made.
package settlement
