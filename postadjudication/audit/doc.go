// Package audit checks the evidence of a Recourse database: every chain of receipts, and that what
// is stored follows from the receipts. It needs no Service: a connection that may only SELECT is
// enough, on a primary or a standby, also while triggers are off and while others write. A file of
// receipts (OpenFile) can be checked without any database, as far as receipts alone can show.
//
// Run checks tenants, or all tenants. A difference that is found while others write is read again
// at one moment before it is reported. A Report without breaks proves that nothing was changed
// that receipts determine, except by somebody who recomputed a whole chain or cut off its end and
// all rows that name it: only heads that were saved elsewhere reveal that (CompareHeads).
//
// The package promises to change nothing, to take no lock, and to keep no receipts in memory but those of
// one case. What it keeps of all is small: the head of each case, the sums of each escrow, the result of each
// archive file, and at most MaxBreaks breaks. It derives what receipts determine by package
// internal/binding, as the engine does, and reads rows by package internal/trail, whose statements
// are its own. It knows neither the engine nor the journal.
package audit
