// Package dlq is the commands about dead letters: list and inspect, fork, reconcile, hold and
// mark one or many, remove, and the rules of automatic replay.
//
// # Promise
//
// A command on one letter takes its run. The same command on many takes a filter, stores a
// plan, and shows it before it runs. An empty flag is an error: it never widens what a filter
// selects. If a plan leaves items undone the command returns an error with the command that
// lists them.
//
//	flags ──▶ filter ──▶ Backend.DeadLetters ──▶ view or JSON
//	              └──▶ plan ──▶ shown, confirmed ──▶ Backend.Bulk ──▶ progress ──▶ answer
//
// # House
//
// It uses a Backend and opens no server and no table. Only rebuild works directly on the database.
package dlq
