// Command chaos breaks everything around several workers while people make decisions,
// heals it, and verifies what happened to the money.
//
//	go run ./internal/chaos --seed 7 --minutes 5
//	go run ./internal/chaos --prove
//	go run ./internal/chaos --mutate --package settlement
//
// It starts a private durable Postgres and a private Redis, puts a proxy before
// each and before an escrow service with a ledger of its own, and submits adjudications
// all the time, whose calls succeed, fail, hang, panic, misreport, or are answered late. A
// schedule that depends on the seed only injects faults (faults.go, workerfaults.go,
// tampering.go, databaseclock.go: the database's clock is set ahead and then right). A second escrow service forgets keys while the run lasts, asks to wait for longer than that, and
// answers from replicas that lag; and some payments are moved and stated in two parts, of which a late answer states the whole (services.go). Another one has people act (people.go) while machines are dead or frozen:
// they record findings, decide the other way or again, cancel, fork, plan, and open
// breakers, always correctly by the escrow service's ledger. Beside that, jobs of Open Job
// Spec are enqueued over HTTP at the workers' /ojs, through a proxy of their own, and remote
// workers, which are processes too, fetch them (remotejobs.go, package remote): they die,
// freeze past their leases, answer late or twice, fail, and lie, and people cancel jobs and
// retry and delete their dead letters. Adjudications are paid by remote workers of several principals, each with a key: one
// pays in every manner in which an honest worker may, one contradicts itself, one answers for the orders of the others, and
// one answers only after its lease (payers.go). At the end everything is healed, all unknown outcomes
// are looked up, and when no run is live the result is verified. With -asynchronous the escrow service accepts the calls
// of a third of the decisions, and executes or refuses them later.
//
// # What is verified
//
// The escrow service pays whatever it is asked and counts. The verification uses the ledger
// instead of Recourse's answer wherever the ledger has the fact. It counts:
//
//   - each effect that is one too many, by operation key, by decision, by case both ways,
//     by escrow;
//   - each sum that a case or an escrow has booked otherwise than the ledger has it, by case,
//     operation key, way and currency;
//   - each payment that an executor or a worker stated, as a sum with a reference, and that no receipt has, neither as
//     a payment nor as what contradicts one; each contradiction on record that nobody stated (statements.go). A worker
//     that was killed soon after it received a statement need not have recorded it: a person then finds what the service could
//     tell nobody;
//   - each answer for another principal's order that was accepted, or that has no receipt; each
//     denial of a payment without one. What a liar reported of an order that it held counts as its word, an
//     honest worker's is compared with the ledger;
//   - each decision that was answered as accepted, with any reply, and left neither effect
//     nor letter nor run; each that was cancelled and carried out all the same;
//   - the cases whose outcome is still unknown, of which none may be left;
//   - the runs that are still live, and those that made no progress after a fault while no
//     other one did, or for longer than all of them may take;
//   - each receipt that reports tampering that the runner did not do;
//   - reserved money that neither a live run nor an open letter shows, nor, where the letter
//     was purged or closed or its fork cancelled, the list of cases with a way out;
//   - each attempt whose call came before its time by the ledger's own clock, and each
//     call of a process whose clock was far off;
//   - whatever package audit finds.
//
// Jobs are judged by the ledger of the remote workers and by what those who enqueued them were
// answered (package remote). It counts each job
//
//   - that was accepted, and is not completed, cancelled, discarded, a dead letter, or deleted by
//     somebody's act in the end; that was refused, and exists;
//   - that was acknowledged with success more than once, or by another answer than the one that
//     counts, or by a lie that can be noticed; that is completed, and nobody did its work;
//   - that two workers held at once; that was given before its time, after its end, or
//     without a receipt; whose holder was refused;
//   - whose accepted retries are not the retries in its receipts;
//   - that was unique, and live while another one with its key was.
//
// Each fault and each act is written to stderr as it happens; -only NAME runs it alone. The
// result is one JSON object on stdout. The exit code is 1 when an invariant is broken; then
// the data directory is kept, and its path is printed.
//
// The tests of this package kill a worker at every failpoint of every transition, and give
// the verification a broken state for each thing that it counts. Package prove removes the
// product's guards, one by one, and checks that a test fails without each.
//
// It uses what every user of the library can use, packages background, fakeescrow and failpoint, the private
// servers, and packages remote, worker and prove. Nothing imports it.
package main
