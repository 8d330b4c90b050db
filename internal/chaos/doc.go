// Command chaos breaks everything that can break around several workers, has people
// decide meanwhile, heals it, and judges what became of the money.
//
//	go run ./internal/chaos --seed 7 --minutes 5
//	go run ./internal/chaos --prove
//
// It starts a private durable Postgres and a private Redis, puts a proxy before
// each and before an escrow service with a ledger of its own, and hands over
// adjudications all the time, whose calls succeed, fail, hang, panic, lie, or are
// answered late. A schedule that the seed alone decides injects faults (faults.go,
// workerfaults.go, operators.go), and another one has people act (people.go): they find
// out, decide the other way or again, cancel, fork, plan, and open breakers, as is right by
// the escrow service's ledger, while machines are dead or frozen. At the end everything is
// healed, the escrow service is asked about all that is unknown, and when nothing moves
// any more the judgement is made.
//
// # What is judged
//
// The escrow service pays whatever it is asked and counts. The judgement believes nothing
// that Recourse says where the ledger can say it:
//
//   - each effect that is one too many, by operation key, by decision, by case both ways,
//     by escrow;
//   - each decision that was answered as accepted, in whatever word, and left neither
//     effect nor letter nor run; each that was cancelled and carried out all the same;
//   - the cases of which it is still unknown what was moved, of which none may be left;
//   - the runs that are still live, and those that stood still after a fault while no other
//     one moved, or for longer than all of them may take;
//   - each receipt that blames somebody for what the runner did not do;
//   - money that is reserved and that neither a live run nor an open letter shows, nor, where
//     the letter was purged or closed or its fork cancelled, the list of cases with a way out;
//   - each attempt whose call came before its time by the ledger's own clock, and each
//     call of a process whose clock was far off;
//   - whatever Audit finds.
//
// Each fault and each deed is told on stderr as it happens, and strikes alone when it is
// named with -only. The judgement is one JSON object on stdout. The exit code is 1 when
// anything that must be true is not; then the data directory is kept, and told.
//
// The tests of this package kill a worker at every failpoint of every transition, and feed
// the judgement a broken world for each thing that it counts. Package prove takes the
// product's guards away, one by one, and sees that each is missed.
//
// May import everything that a user of the library may, the private servers, and package
// prove. Nothing imports it.
package main
