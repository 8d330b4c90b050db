// Package referencepolicy keeps each tenant's policy of references, and applies it to values that look like secrets.
//
// The newest receipt of the tenant's log "references" is the policy: no table repeats it.
//
//	Set ──▶ receipt references-changed, if the newest is still the one that was read ──▶ in force here at once,
//	                                                                                in other processes after [CacheTTL]
//	value ──▶ a secret, or a spelling of a reference? ──no──▶ nothing is read
//	                        └──yes──▶ the policy, read at most once in CacheTTL ──▶ accepted, rewritten or refused
//
// So what looks like no secret costs no read. A policy that can't be read refuses nothing and accepts nothing: the caller
// gets the error, and tries again. One that a newer version has set is such an error too, with [references.FormatError].
//
// The package imports the journal, the redaction and package references. It knows no families, letters or plans.
package referencepolicy
