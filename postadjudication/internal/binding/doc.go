// Package binding derives what the receipts of a case determine: the operation key of a decision,
// the request that is sent under it and their digests, the settlement that follows from the
// receipts, the digest of a bulk plan, and the texts of receipts by which rows are compared.
//
// Who executes a decision and who audits it derive these by the same functions: a difference
// between the two derivations would look like tampering, or hide it.
//
// The package promises that equal input gives equal output, in every process and every version:
// what is derived is stored in receipts for ever. It is pure: it reads no clock, no row and no
// configuration, and its functions may be called concurrently.
//
// It knows neither the journal nor the engine (package background), nor anything of requests, pages
// and filters.
package binding
