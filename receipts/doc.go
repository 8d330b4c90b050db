// Package receipts is the evidence of a case: append-only facts, each chained to the one before it.
//
// A receipt says who did what to which run of which case, when and why. Its body is canonical JSON
// (RFC 8785), written by [AppendBody] and read by [Parse]; the two are inverses, to the byte. Its link is
//
//	link(0) = SHA-256("recourse/1" ‖ 16 bytes of the case id)
//	link(n) = SHA-256(link(n-1) ‖ n as 8 bytes big-endian ‖ SHA-256(body(n)))
//
// so that no receipt can be changed, moved, inserted or dropped from the middle unnoticed. A tail cut off
// is noticed by whoever kept an earlier head: [FormatHeads] writes such heads as text, and a [Verifier]
// holding them compares. A verifier needs nothing but the receipts and, for that, the heads.
//
// [Fold] is the one way to read a state off the receipts:
//
//	(none)                       submitted                              -> pending
//	pending, scheduled           attempt-started                        -> running
//	running                      retry-scheduled, attempt-interrupted   -> scheduled
//	running                      attempt-succeeded                      -> succeeded
//	pending, running, scheduled  dead-lettered                          -> dead_lettered, letter open
//	pending, running, scheduled  cancelled                              -> cancelled
//	pending, scheduled           reconciled as executed                 -> succeeded
//	letter open                  manual-retry-requested                 -> letter forked
//	letter open                  reconciled as executed                 -> letter reconciled
//	letter open                  superseded                             -> letter superseded
//	letter open                  purged, retention-expired              -> letter purged
//
// A payment can be found after the run was closed. reconciled as executed is also told of a letter that was
// purged, and, where no payment of it was known, of a letter that was forked, superseded or closed and of a
// cancelled run. What was closed stays so.
//
// [Events] makes receipts public: each gives none, one or several events, always the same.
//
// The package is pure: it imports the standard library only, and knows no store, clock, log or network.
// It must not know what a settlement may become or when a retry is due; it holds what others decided.
package receipts
