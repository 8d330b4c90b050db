// Command chaos breaks everything that can break around several workers, heals it,
// and judges what became of the money.
//
//	go run ./internal/chaos --seed 7 --minutes 5
//
// It starts a private durable Postgres and a private Redis, puts a proxy before
// each and before an escrow service with a ledger of its own, and hands over
// adjudications all the time, whose calls succeed, fail, hang, panic, lie, or are
// answered late. A schedule that the seed alone decides injects faults (faults.go).
// At the end everything is healed, and when nothing moves any more the judgement
// is made: from the receipts, the stored state, and the escrow service's ledger,
// which believes nothing that Recourse says.
//
// Each fault is told on stderr as it happens. The judgement is one JSON object on
// stdout. The exit code is 1 when anything that must be true is not; then the data
// directory is kept, and told.
//
// The tests of this package kill a worker at every failpoint of every transition.
//
// May import everything that a user of the library may, and the private servers.
// Nothing imports it.
package main
