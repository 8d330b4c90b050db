// Package fakeescrow is a small escrow service with a ledger of its own, for
// demonstrations and tests. It serves the API that package escrowhttp calls, fails as
// each request asks, and reports what was really moved, how often, and whether
// anything was moved twice.
//
// # Misbehaviour
//
// A request has the outcomes of its calls in payload.simulate: a list of words, or one
// string of words separated by commas. Each POST of the operation key takes the
// next word; the last one repeats.
//
//	word       what happens                                               money
//	ok         200                                                        moved
//	retryable  429                                                        -
//	later      429, Retry-After: 1                                        -
//	refused    422                                                        -
//	funds      422 if the escrow has not that much left, else as ok       moved
//	hang       no answer until the client goes away                       -
//	drop       the connection ends without an answer                      moved
//	late       200, but only after Config.Late                            moved
//	panic      200, and an executor wrapped by Panicking panics after it  moved
//	partial    200 with half of the amount, rounded up                    moved
//	dark       as drop; lookups of the key answer 503 until the repair    moved
//	lost       the same, before anything was moved                        -
//	wait       503 with a Retry-After of Config.Wait                      moved
//	legs       200 with two fifths of the amount, rounded up; the rest    moved
//	           follows after half of Config.Late
//	whole      no answer until other calls of the key have moved the      -
//	           whole amount; then 200 with it
//	accept     202, as to each call until Config.Late is over; then paid  moved
//	decline    the same, but then nothing was moved                       -
//
// A key that was paid answers already_executed at once to every later call, unless
// the word is dark or whole. Its sum is the total that was moved under the key so far.
//
// The outcomes of lookups of its key are in payload.lookup in the same form, or else
// in Config.Lookup.
//
//	word  what happens
//	ok      the state of the ledger
//	lag     its state Config.Lag ago, as from a replica that lags
//	lie     the opposite of its state
//	absent  not executed, whatever its state, as from a replica that lags far
//	fail    503
//
// A lookup of a call that is accepted and has not ended is answered 202 where the word shows the state of the
// ledger.
//
// After Repair every word means ok, for calls and for lookups.
//
// # Ledger
//
// Effects are appended to a list and never changed. A request under an unknown key is
// paid and counted, unless its word says otherwise. It is not refused because the escrow has too little, or
// because the transaction was paid before: a second payment has to show. A known key is
// paid once, and is refused (422) when it comes with another request. After Config.KeyLifetime, counted from its first call, a key is
// forgotten: a lookup answers not executed, and another call pays again. A lookup may know it for longer, by Config.LookupLifetime.
//
// Each call and each effect has its time by the service's own clock. Violations are
// recomputed from the list of effects only.
//
// It must not know of runs, policies or storage: it relies on nothing that Recourse says.
package fakeescrow
