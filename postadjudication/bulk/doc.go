// Package bulk plans what is done to many dead letters or cases, and runs the plans.
//
//	planned ─▶ running ◀─▶ paused
//	   │          ├─▶ done       every item has an outcome
//	   └──────────┴─▶ cancelled  by a person; what was done stays done
//
// It promises that a plan does to a letter what the method for one letter does, with the same gates;
// that it does it at most once, whichever processes work on it and die; that it touches no letter
// that changed since it was planned; that a plan that states or frees money, or forks or purges
// settlements, is started by another person than its author, unless the tenant requires one only;
// and that every change of a plan's state has a receipt.
//
// It imports casework for every change, deadletter for what a plan selects, and the plans of the
// journal. It must not know rules, retention and the service.
package bulk
