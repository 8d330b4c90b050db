// Package journal is the append-only record of all runs and cases, in Postgres.
//
// # Promise
//
// A run, its case, its escrow and its receipts change together, in one statement and one
// commit, or not at all. A transition is written only if the case's head and the run's
// state, attempt, token and cancel request are still those it was decided on; otherwise the
// caller reads again and decides again. A repeated transition that is the run's last one is written
// once; an earlier one is decided again, and refused.
//
//	Submit ──▶ open statement ──exists──▶ read ─▶ Decide ─▶ transition statement
//	CommitTransition ──▶ (cache or read) ─▶ Decide ─▶ transition statement ──conflict──▶ read ─▶ Decide ...
//
// Concurrent callers share statements (pg.Batcher). Batches and callers' transactions
// skip rows that another transaction has locked. Of the skipped rows, one per case or
// escrow waits for the lock, for two seconds at most, on a connection of a slow path
// (pg.WaitForLock), and none waits for a free connection there. An opening with a payload that is too large for a
// batch and a transaction of more than one statement do wait for a connection, for two seconds at most
// (pg.SlowPath). Statements that wait lock in one order: cases, runs, escrows, each by id. A claim also locks its
// session, at any place in that order: whoever removes a session holds nothing else. A row of settings is locked
// before the case of its receipts. The narrow statements wait for no lock of a row; only an INSERT of a new escrow
// waits for another of the same, for the length of that statement.
//
// Of transitions, only a reservation locks an escrow. Every other one inserts what it adds to or
// frees from the committed sum as a delta. Whoever locks the escrow's row folds the deltas,
// and counts only those its own DELETE returned (escrows.go). The sum of an escrow is its
// row and its open deltas together, at one moment.
//
//	transition ─same commit─▶ escrow_deltas ─folded by a reservation or by the loop─▶ escrows
//
// A change with a SideEffect writes more than its case, in one transaction: both are
// committed, or neither. The transaction runs alone on a connection of a slow path, and so does the fork of a
// remote run, whose job may be unique. Deaths whose handlers begin share one transaction
// (letterhandlers.go).
//
// Each statement that writes receipts adds a row to the outbox. One process at a time, the
// holder of a lock of its database session, numbers what is committed (sequencer.go). The result is one
// order of all receipts, without gaps, in which the receipts of a case keep their order. A
// transaction that commits late is numbered late.
//
//	receipts ─same commit─▶ outbox ─sequencer─▶ event log ─cursor─▶ readers
//
// What a submission fixed is bound to its receipt: a run is read together with the terms of
// its submitted receipt (snapshot.go), and triggers refuse to change it in every database session.
//
// The search index of dead letters, which follows that order, is package search; stored bulk plans
// are package plans; webhooks and their positions are package webhookstore. They are opened beside the
// journal, and share its connections' time-outs.
//
// The schema is that of internal/schema. The columns of cases, runs and receipts are described
// once (columns.go): the parameters of the statements that write transitions are derived from
// the description, and tests compare it with the schema and with what snapshots read.
//
// # A row
//
// Record of a family calls CommitTransition, which decides, chains the receipts and gives the change to a
// pg.Batcher (transition.go, change.go). Submit does the same with the opening of a case (submit.go). The
// batcher calls a flush: flushTransitions (transitionsql.go), flushOpens (opensql.go), flushLeaseEnds (heldleases.go)
// for ends of remote attempts, flushHandledDeaths (letterhandlers.go) for deaths that begin handlers. It writes the
// usual changes with the narrow statement, and the rest with the wide one (narrowwide.go); of deaths that begin
// handlers it writes all with the wide one. Two more batchers read runs, by findBatch (snapshot.go), and claim runs
// for remote workers, by LeaseStore.flush (leaseclaims.go). What becomes of a row:
//
//	a guard fails, or a row of    the others are written; CommitTransition reads and decides again, and
//	its case is locked            may wait
//	Postgres refuses a value      the batch is written row by row; the caller of this row gets
//	                              background.ErrUnrecordable, for good
//	the connection is lost        the outcome of every row is unknown; the engine repeats the same
//	                              transition, and the run's last transition tells whether it was written;
//	                              a person's request gets the error, and may be repeated
//	the process dies              the statement is committed whole or not at all; the claims of the
//	                              process are recovered by its session
//
// Of an opening, openWithRetry opens a row again that is locked or did not fit into its escrow after others. Submit
// repeats nothing after any other error: it returns it, and after a lost connection the outcome is unknown. A
// submission that its sender repeats has a new run id; it finds the case if the first one was written.
//
// If the server or a proxy closes a connection before the answer comes, the driver reports driver.ErrBadConn, and
// database/sql executes the statement again on another connection, unless it belongs to a transaction. The second
// execution writes nothing: the guards of a transition do not hold, or the case exists. CommitTransition then
// recognizes its own transition by its id, and Submit its own run. After a reset connection nothing is executed
// again.
//
// # Dependencies
//
// What an audit must agree on with the journal is in package stored. The compiler lets only
// packages under postadjudication import it. It must not know its packages search, plans and webhookstore, which
// are built on it: they write receipts inside of their own transactions, by AppendOperation. It
// decides nothing about retries or settlements, knows no Redis, and reads no clock for what it
// stores.
package journal
