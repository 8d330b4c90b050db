// Package failpoint lets a process kill or freeze itself at a named point, so that
// tests can end it between any two steps that must survive a crash.
//
// A point is a moment and a subject, such as "journal.before:attempt-started".
// The moments:
//
//	journal.before  a statement that writes the subject is about to be sent
//	journal.after   it was answered: the write is committed, refused, or part of the
//	                caller's transaction, and the caller has not returned yet
//	notify.before   a notification is about to be sent to Redis
//	notify.after    Redis has answered
//	call.before     the start of the attempt is recorded, the executor is about to be called
//	call.last       all but the last byte of the request may be sent, and Attempt.Fresh is
//	                about to be called for the last one
//	call.after      the executor has answered, nothing of its answer is recorded
//
// Subjects of the journal are the receipt subtypes of a change, so that a new kind of
// change has its points at once. Changes without receipts, such as those of sessions and
// notifications, have names in catalogue.go.
//
// A process has an armed point only if it calls Arm. The shipped programs do not, and pay
// one atomic load for each point that they pass.
//
// It does not know its callers.
package failpoint
