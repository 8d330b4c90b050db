// Package house tests the rules that all code of this repository keeps. It has no code but tests.
//
// # Rules
//
//   - Imports run one way. A table (house_test.go) says which package imports which. The compiler lets only
//     packages under postadjudication open the journal. Pure packages do no I/O, and have no clock,
//     no log and no dependency.
//   - A file has at most 500 lines, a function 70, a package 35 files and 110 exported names, a type
//     30 methods, each at most.
//   - Tests of public packages are black-box. A list names those that are not, and can only get
//     shorter, and so can the number of those that query the database.
//   - Every package has a comment that says what it promises.
//   - Things are called by the words of the field. Words that once had a sense of their own here
//     stand in no identifier, comment or text, of Go or of the schema.
//   - Each public verb, a function or method that users call, is called in an example that go doc shows
//     with its package or with postadjudication. A list names the few that need none, with the reason.
//   - Go in the guides compiles. The journeys of the contributors' guide name files, and what to read in
//     them, that exist: 14 files at most.
//
// # Glossary
//
// Each word has the meanings given here, and no other.
//
// Work:
//
//	adjudication         a decision to release or refund money of an escrow, handed over for execution
//	submission           a request for a run: an adjudication, a task or a job that is handed over
//	admission            an adjudication with all that its run needs, fixed before the journal is read
//	generation           which decision about one transaction it is, from 1
//	case                 everything about one transaction, or about one task; its runs share one settlement, if any
//	subject              of a case: the transaction, the retry key of the task or the id of the job that it is about; of
//	                     postadjudication: a part of what it does, with a package of its own
//	run                  one task, such as to carry out an adjudication, with its own budget of attempts
//	family               a kind of task: its handler, its policy, and how its transitions are recorded
//	handler              the function of a family that makes an attempt; a letter handler is the run that a
//	                     death starts
//	target               the name of a service that a family's handler calls; of a job, its type
//	attempt              one execution of a run: one call of a handler, or one lease of a remote worker
//	retry                the next attempt of the same run; the receipt subtypes and the command "retry"
//	                     that users know before the word fork stay
//	dead letter, letter  a run that failed for good and waits for a decision
//	death                the transition by which a run becomes a dead letter
//	fork                 a new run of a dead letter, with a new budget
//	replay               a fork or mark by a rule, without a person; the receipt "replayed" and the counts of
//	                     that name are also of forks by a plan; of a lineage: all its forks; of a webhook: to send
//	                     its events again from an earlier position; of an escrow service: to answer a repeated
//	                     operation key with the failure that it stored
//	lineage              a run with its forks and ancestors
//	operation key        the idempotency key of the escrow service, the same on all attempts of a decision
//	epoch                which operation key of a generation it is, from 0; a fork with a new key raises it
//	claim                the right to make the next attempt, of one process or of one remote worker, written
//	                     before the attempt starts
//	transition           one change of a run and its case, with its receipts, in one commit
//	reservation          what of an escrow is kept for a case, so that no other case gets it
//	delta                what one commit adds to the sums of an escrow, stored until it is folded into them
//	committed            of an escrow: reserved, released and refunded together, less what came back; of a change: written for good
//	returned payment     a payment, or a part of it, that came back after it was made; identified by the bank's reference
//	uncovered            what the payments of a case took of its escrow beyond what was reserved for them
//	excess               what a payment moved beyond what was decided
//	breached             of an escrow: by how much the sum that it has committed was ever more than it holds
//	worker               a process that makes attempts; a remote worker is none, but for the role worker of its key and
//	                     the worker of a lease
//	in flight            of a run: an attempt of it is being made by this process; of a call: it was begun, and may
//	                     still be executed
//	shard                one of the queues of a family, numbered from 0; its name is FAMILY:N
//	outstanding call     a call that was given up and may still be executed
//	slot                 the right to begin one handler call; a process has a fixed number of them, and a call gives its
//	                     own back when it ends, or after a second unless three times as many calls are on without one;
//	                     of a slow path: one of its connections; of a cache: the place of an entry; of reads and
//	                     lookups: the right to make one more at the same time
//
// Decisions:
//
//	snapshot             a run and its case as they were at one moment; of Redis, of OpenWOP's log and of a page of
//	                     Postgres: what those call one
//	change               what a transition or a decision writes: a case, its runs and receipts, in one commit
//	draft                a receipt of a change before it has its place in the chain
//	guard                a condition that keeps a promise about money or evidence, in a statement or beside
//	                     a decision; of a database: a trigger, function, constraint or unique index
//	gate                 a named reason for which something is refused, and nothing is changed
//	plan                 what is to be done to many dead letters or cases, stored before it is started; its items are
//	                     the letters or cases, and its hash is what whoever starts it confirms
//	tenant               whose adjudications, cases and keys they are; tenants see nothing of each other
//	actor                who a receipt says did something: a person, a program or a part of Recourse
//	principal            whom an access key belongs to; the actor of what is done with the key
//
// Delivery:
//
//	notification         the asynq task that brings a run to a worker; it may repeat, come late or get lost
//	delivery             what a worker does with a notification, from the claim to the answer to asynq; of a webhook: the
//	                     sending of its events
//	dispatch reference   the id of the asynq task that brought a run to its worker: the run and the number of the
//	                     notification
//	lost delivery        a notification that Redis handed out and no worker got
//	orphaned task        a task that claims to be queued where no worker will take it
//	archived task        the entry of a dead letter in asynq's archive, for asynqmon
//	session              one running process, as the database knows it; of Postgres: one connection
//	heartbeat            the periodic write by which a session shows that its process lives; of a lease: the request
//	                     that extends it; of a stream: a line that says it is open
//	sweep                a pass over runs that are due and have no notification; it notifies again
//	recovery             what a live process does with the runs of a lost session
//
// Jobs and remote workers:
//
//	job                  what Open Job Spec calls a job: a remote run with its retries, under one id
//	envelope             the JSON of a job, as its client gave it and as workers get it
//	remote run           a run that remote workers fetch; asynq does not deliver it
//	remote worker        a program outside, in any language, that fetches runs and answers for them
//	fetch                the request of a remote worker for due runs of some queues
//	lease                what a remote worker holds while it executes an attempt; it ends if no heartbeat comes
//	                     for its length
//	holder               of a lease, the remote worker that fetched it; of a fingerprint, the job that has it
//	answer               of a remote worker: what it says of a leased attempt: ack, nack or hand back; of an escrow service
//	                     or a receiver: its response; of a delivery: what it tells asynq to do with the task
//	ack, nack            the attempt succeeded, failed
//	hand back            to give up a leased attempt without making it: it spends nothing, and the run can be
//	                     fetched at once
//	late answer          an answer for an attempt that has ended; recorded where it adds a fact about money
//	discard              to end a run that failed for good without a dead letter; never a run that moves money
//	activate             to let a job be fetched that was enqueued as pending
//	expire               to end a waiting run because no attempt of it started in time; of a dead letter: to reach the
//	                     end of its retention; of a key: to reach its end
//	fingerprint          the digest of the parts of a job that make it unique
//	queue                of asynq: where notifications wait; of remote runs: what remote workers fetch from
//
// Webhooks:
//
//	webhook              a URL of a tenant to which its public events are sent, signed
//	receiver             the program behind the URL of a webhook
//	public event         what a tenant may know of a receipt: a type, data and an id, the same at every reading
//	position             the place of a public event among those of its tenant; of a webhook: how far it is
//	cursor               where the next page of a list begins
//	signature            of an event that is sent: the proof that it comes from here; of a failure: its type and message
//	                     without what differs from run to run, such as ids and amounts
//	feed                 the reader of a tenant's public events that its webhooks share
//	pending              of an event of a webhook: read, and neither delivered nor skipped; of a run: its first attempt
//	                     is due; of a job: to be activated first; of an item of a plan: not worked on yet
//	sender               the part of a process that sends to webhooks; one process holds its lock, and sends
//
// HTTP:
//
//	door                 one HTTP API of a process: /api/v1, /ojs or /v1; package door has what all share
//	caller               who makes a request: tenant, principal and roles of the key, or local; of a decision: how its
//	                     actor was authenticated
//	refusal              why a request is refused, before its door renders it: a status, a code, a detail
//	outage               what is known of a request whose servers could not be reached; of an escrow service or an
//	                     archive: that it does not answer
//	test mode            of a process with private servers: resets, and a clock that tests move
//	workflow             of OpenWOP: a family whose runs can be created there
//	log of a run         of OpenWOP: the events that follow from the receipts of one run
//
// Escrow services:
//
//	accepted             of a call: the escrow service has it and has not ended it; of a submission: its reply says that
//	                     it will be executed, or has been
//	lookup               a question to the escrow service what became of an operation key
//	finding              what a person states about a payment, with a reference
//	circuit breaker      what stops the calls of one escrow service
//	open                 of a circuit breaker: no call but probes; of a dead letter: nothing was decided about it yet; of
//	                     a delta: not folded
//	half-open            of a circuit breaker: a growing number of calls
//	probe                an attempt of a run that a circuit breaker pauses, to learn whether the service works
//
// Dead letters:
//
//	annotation           what people and rules noted on a dead letter: hold and marks
//	hold                 an annotation that keeps a dead letter from retention and from rules
//	held                 of a dead letter: it has a hold; of an escrow: the money that it was opened with
//	projector            the loop that keeps the index of dead letters up to date
//	mark                 an annotation that a dead letter may be replayed, or needs a person
//	facet                a property by which dead letters are filtered and counted, such as the reason
//	facet group          the dead letters whose facets are all equal, counted in one row
//	access path          how a search reads the index: by facet group, in order, or by trigram
//	trigram              three characters in a row, indexed to find substrings of error texts
//
// Evidence:
//
//	receipt              one append-only fact about a case: who, what, when, why
//	chain                the receipts of a case, each with the hash of the one before
//	trail                all receipts of a case or tenant, as an auditor reads them
//	fold                 to derive the state of a case from its receipts; of escrow deltas: to add them to their sum
//	outbox               the receipts that are committed and have no number yet
//	number               of a receipt: its place among all receipts, or among those of its tenant, given after the commit
//	order of events      the receipts by their numbers; a tenant sees positions of its own in it
//	terms                what the submitted receipt of a run states
//	head                 the last link of a chain, to be kept elsewhere; of a case also its version: a change is written
//	                     only on the head that it was decided on
//	store                what keeps data, behind an interface: of the engine's runs (background.Store), of leases
//	                     (background.LeaseStore), of access keys, of plans, of archive files
//	engine               package background, with background.Manager; a service holds it as engine.Engine;
//	                     journal.Engine is the journal as it is the engine's store
//	journal              the engine's store on Postgres (postadjudication/internal/journal)
//	row                  of a table; of a batch: what one caller queues, such as a change, until it is written
//	narrow statement     writes the rows of a batch that are of the most frequent kind, with fewer columns
//	wide statement       writes rows of every kind
//	slow path            the few connections of statements that may wait for a lock, one at a time a lock
//	operation            of HTTP: one method of one path; of the escrow service: what has an operation key; of an
//	                     operation log: a change of a setting
//	operation log        a chain of receipts about settings: policies, keys, rules, circuit breakers
//	audit                the comparison of everything stored with what the receipts say
package house
