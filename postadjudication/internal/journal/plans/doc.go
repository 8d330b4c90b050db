// Package plans stores bulk plans: an action, and the dead letters that it is to be applied to, with
// the heads of their cases at the moment of the plan.
//
// # Promise
//
// A plan is stored with its items, or not at all: the items first, which have no effect by
// themselves, then the plan with its receipt in the tenant's log of plans. All items are of one
// snapshot, found and inserted in the same transaction. One process at a time holds the Lock of a
// plan; it saves work and is no guard. The outcome of an item is written once (failed may become
// done), and the state of a plan changes together with its receipt.
//
// # House
//
// It applies no action and decides nothing about letters; what may be done with one is asked of its
// caller (Scope.Matches, Scope.GateOf).
package plans
