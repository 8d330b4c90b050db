// Package dlq is the commands about dead letters: to look at them, to fork, reconcile, hold
// and mark one or many, to remove them, and the rules by which they are replayed.
//
// # Promise
//
// A command on one letter takes its run; the same command on many takes a filter, and goes
// by a plan that is shown before it runs. A flag that says nothing is refused: it never
// widens what a filter selects. What a plan has left undone is an error, with the command
// that lists it.
//
//	flags ──▶ filter ──▶ Backend.DeadLetters ──▶ view or JSON
//	              └──▶ plan ──▶ shown, confirmed ──▶ Backend.Bulk ──▶ progress ──▶ answer
//
// # House
//
// May import the other packages of internal/cli but internal/cli itself, demo and doctor,
// internal/app and internal/api for their words, cobra and the public packages. It opens no
// server and no table: a Backend does what it asks. Rebuild alone works beside the database.
package dlq
