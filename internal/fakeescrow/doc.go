// Package fakeescrow is a small escrow service with a ledger of its own, for
// demonstrations and tests. It speaks the wire of package escrowhttp, behaves as
// badly as each request asks, and judges: what was really moved, how often, and
// whether anything was moved twice.
//
// # Misbehaviour
//
// A request says in payload.simulate how its calls go: a list of words, or one
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
//
// A key that was paid answers already_executed at once to every later call, unless
// the word is dark.
//
// How lookups of its key go is said in payload.lookup in the same form, and where
// nothing is said there, in Config.Lookup.
//
//	word  what happens
//	ok    what the ledger says
//	lag   what it said Config.Lag ago, as a replica that is behind does
//	lie   the opposite of what it says
//	fail  503
//
// After Repair every word is ok, of calls and of lookups.
//
// # Ledger
//
// Effects are appended to a list and never changed. Whatever is asked for under a key
// that is not known is paid and counted: nothing is refused because an escrow has not
// that much, or because the transaction was paid before, so that a second payment is
// seen and not hidden. A known key is paid once, and is refused (422) when it comes with
// another request. After Config.KeyLifetime, counted from its first call, a key is
// forgotten: it is looked up as not executed, and paid again when it is called again.
//
// Each call and each effect has its time by the service's own clock. The judgement
// recomputes everything from the list of effects alone.
//
// The package may import postadjudication, settlement and the standard library.
// It must not know of runs, policies or storage: it believes nothing Recourse says.
package fakeescrow
