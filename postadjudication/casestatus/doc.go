// Package casestatus reports what became of runs and cases: their states, what a waiting run waits
// for, the relatives of a run by fork, the replays by rules, and the list of cases with what may be
// done about each.
//
// It promises to change nothing, and that a status names the one thing that has to change first. It
// reads the journal through package casework and must not know dead letters as a subject: no
// filter, no plan and no rule.
package casestatus
