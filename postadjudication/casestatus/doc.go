// Package casestatus reports what became of runs and cases: their states, what a waiting run waits
// for, the relatives of a run by fork, the replays by rules, and the list of cases with what may be
// done about each.
//
// It promises to change nothing, and that a status names the one thing that has to change first. It
// must not know the search for dead letters, plans, or who asks.
package casestatus
