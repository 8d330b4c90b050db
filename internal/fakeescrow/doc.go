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
//	refused    422                                                        -
//	hang       no answer until the client goes away                       -
//	drop       the connection ends without an answer                      moved
//	late       200, but only after Config.Late                            moved
//	panic      200, and an executor wrapped by Panicking panics after it  moved
//	partial    200 with half of the amount, rounded up                    moved
//	dark       as drop; lookups of the key answer 503 until the repair    moved
//	lost       the same, before anything was moved                        -
//
// A key that was paid answers already_executed at once to every later call, unless
// the word is dark. After Repair every word is ok.
//
// # Ledger
//
// Effects are appended to a list and never changed. A key is looked up before it
// is paid; what an escrow held in its first request bounds what is moved out of
// it (422 insufficient_funds); a key that comes with another request is refused
// (422). The judgement recomputes everything from the list of effects alone, so a
// fault in those guards would show.
//
// The package may import postadjudication, settlement and the standard library.
// It must not know of runs, policies or storage: it believes nothing Recourse says.
package fakeescrow
