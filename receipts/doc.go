// Package receipts is the evidence of a case: append-only facts, each chained to the one before it.
//
// A receipt says who did what to which run of which case, when and why. Its body is canonical JSON
// (RFC 8785), written by [Draft.AppendBody] and read by [Parse]; the two are inverses, to the byte. Its link is
//
//	link(0) = SHA-256("recourse/1" ‖ 16 bytes of the case id)
//	link(n) = SHA-256(link(n-1) ‖ n as 8 bytes big-endian ‖ SHA-256(body(n)))
//
// so that a receipt that is changed, moved, inserted or dropped from the middle is noticed, unless every link
// after it is computed anew: links need no key. That, and a tail that was cut off, is noticed by a comparison
// with an earlier head. [Heads] are written as text, and a [Verifier] that has them compares. A verifier needs
// nothing but the receipts and, for that, the heads.
//
// [Fold] is the only way to derive a state from the receipts:
//
//	(none)                       submitted                              -> pending
//	pending                      activated                              -> pending, from now on
//	pending, scheduled           attempt-started                        -> running
//	running                      retry-scheduled, attempt-interrupted   -> scheduled
//	running                      attempt-succeeded                      -> succeeded
//	pending, running, scheduled  dead-lettered                          -> dead_lettered, letter open
//	pending, running, scheduled  discarded                              -> discarded
//	pending, running, scheduled  cancelled                              -> cancelled
//	pending, scheduled           reconciled as executed                 -> succeeded
//	letter open                  manual-retry-requested                 -> letter forked
//	letter open                  reconciled as executed                 -> letter reconciled
//	letter open                  reconciled with letter_closed          -> letter reconciled
//	letter open                  reservation-freed                      -> letter reconciled
//	letter open                  superseded                             -> letter superseded
//	letter open                  purged, retention-expired              -> letter purged
//
// A payment can be found after the run was closed. So reconciled as executed may also follow for a letter that
// was purged, and, where no payment was known, for a letter that was forked, superseded or closed and for a
// cancelled run. The letter or run stays closed.
//
// Package events makes receipts public: each gives none, one or several events, always the same.
//
// The package is pure: it imports the standard library only, and knows no store, clock, log or network.
// It must not know what a settlement may become or when a retry is due; it records what others decided.
package receipts
