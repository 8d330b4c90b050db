// Package failpoint lets a process kill or freeze itself at a named point, so that
// tests can end it between any two steps that must survive its end.
//
// A point is a moment and what it is about, such as "journal.before:attempt-started".
// The moments:
//
//	journal.before  a statement is about to be sent that writes this
//	journal.after   it was answered: the write is committed, or refused, or part of the
//	                caller's transaction, and nobody was told yet
//	bell.before     a bell is about to be put into Redis
//	bell.after      Redis has answered
//	call.before     the attempt is on record as started, the executor is about to be called
//	call.last       all but the last byte of its request may have left, whether the last may
//	                is about to be asked
//	call.after      the executor has answered, nothing of it is on record
//
// What the journal writes is named by the subtypes of the receipts of a change, so
// that a new kind of move has its points from the day it is made; moves of nothing
// but sessions and bells have names of their own (catalogue.go).
//
// A process has armed points only if it calls Arm. The programs that are shipped do
// not, and pay one atomic load for each point that they pass.
//
// The package imports the standard library only, and knows nothing of what it is
// placed in.
package failpoint
