// Package casework applies decisions to cases and their dead letters: it has the family of
// settlements with its late answers and lookups, plain families, the decisions about letters
// (fork, hold, mark, purge, free), findings, and the one way to apply a decision to one letter or
// to many.
//
// It promises that whatever is decided about a case is committed with its receipts and only if the
// case is as it was when it was decided; that money is stated once for each operation key; and that
// nothing is called or forked while an earlier call may still pay. A commit whose result is unknown
// is never repeated blindly: the head of the case shows whether it was written.
//
// Of the caller it knows only what receipts state (Caller, Provenance). It must not know requests,
// filters and pages, nor the service that opens it.
package casework
