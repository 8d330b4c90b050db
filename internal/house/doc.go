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
//     shorter.
//   - Every package has a comment that says what it promises.
//   - Things are called by the words of the field. Words that once had a sense of their own here
//     stand in no identifier, comment or text, of Go or of the schema.
//   - Go in the guides compiles.
//
// # Glossary
//
// Each word has one meaning in this repository.
//
// Work:
//
//	adjudication         a decision to release or refund money of an escrow, handed over for execution
//	generation           which decision about one transaction it is, from 1
//	case                 everything about one transaction; its runs share one settlement
//	run                  one task that carries one adjudication, with its own budget of attempts
//	family               a kind of task: its handler, its policy, and how its transitions are recorded
//	handler              the function of a family that makes an attempt; a letter handler is the run that a
//	                     death starts
//	target               the name of a service that a family's handler calls
//	attempt              one call of the escrow service by a run
//	retry                the next attempt of the same run; the receipt subtypes and the command "retry"
//	                     that users know before the word fork stay
//	dead letter, letter  a run that failed for good and waits for a decision
//	fork                 a new run of a dead letter, with a new budget
//	replay               a fork or mark by a rule, without a person; the receipt "replayed" and the counts of
//	                     that name are also of forks by a plan
//	lineage              a run with its forks and ancestors; users know it as a job
//	operation key        the idempotency key of the escrow service, the same on all attempts of a decision
//	epoch                which operation key of a generation it is, from 0; a fork with a new key raises it
//	claim                the right of one process to make the next attempt, written before the call
//	transition           one change of a run and its case, with its receipts, in one commit
//	outstanding call     a call that was given up and may still be executed
//	slot                 the right to make one handler call; a process has a fixed number of them
//
// Decisions:
//
//	snapshot             a run and its case as they were at one moment
//	change               what a transition or a decision writes: a case, its runs and receipts, in one commit
//	draft                a receipt of a change before it has its place in the chain
//	guard                a condition that keeps a promise about money or evidence, in a statement or beside
//	                     a decision
//	gate                 a named reason for which something is refused, and nothing is changed
//	tenant               whose adjudications, cases and keys they are; tenants see nothing of each other
//	actor                who a receipt says did something: a person, a program or a part of Recourse
//	principal            whom an access key belongs to; the actor of what is done with the key
//
// Delivery:
//
//	notification         the asynq task that brings a run to a worker; it may repeat, come late or get lost
//	lost delivery        a notification that Redis handed out and no worker got
//	orphaned task        a task that claims to be queued where no worker will take it
//	archived task        the entry of a dead letter in asynq's archive, for asynqmon
//	session              one running process, as the database knows it
//	heartbeat            the periodic write by which a session shows that its process lives
//	sweep                a pass over runs that are due and have no notification; it notifies again
//	recovery             what a live process does with the runs of a lost session
//
// Escrow services:
//
//	lookup               a question to the escrow service what became of an operation key
//	finding              what a person states about a payment, with a reference
//	circuit breaker      what stops the calls of one escrow service
//	open                 of a circuit breaker: no call but probes
//	half-open            of a circuit breaker: a growing number of calls
//
// Dead letters:
//
//	annotation           what people and rules noted on a dead letter: hold and marks
//	hold                 an annotation that keeps a dead letter from retention and from rules
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
//	head                 the last link of a chain, to be kept elsewhere
//	store                what keeps data, behind an interface: of the engine's runs (background.Store), of
//	                     access keys, of plans, of archive files
//	engine               package background, with background.Manager
//	journal              its implementation on Postgres (postadjudication/internal/journal)
//	operation            of HTTP: one method of one path; of the escrow service: what has an operation key
//	operation log        a chain of receipts about settings: policies, keys, rules, circuit breakers
//	audit                the comparison of everything stored with what the receipts say
package house
