// Package postgres is the journal: what happened, in Postgres.
//
// # Promise
//
// A run, its case, its escrow and its receipts move together, in one statement and
// one commit, or not at all. A move is written only if the case's head and the
// run's state, attempt, token and cancel request are those that it was decided
// on; whoever loses reads again and decides again. What is written once is
// recognised when it is asked for a second time.
//
//	Submit ──▶ open statement ──exists──▶ read ─▶ Decide ─▶ move statement
//	Apply  ──▶ (hint or read) ─▶ Decide ─▶ move statement ──lost──▶ read ─▶ Decide ...
//
// Concurrent callers share statements (batcher.go). Batches and callers'
// transactions skip rows that another transaction has locked. Of the rows that were
// skipped one a case or an escrow waits for the lock, on a connection of a lane
// (lane.go), for two seconds at most; none waits for room there. Locks are taken in
// one order everywhere: cases, runs, escrows, each by id.
//
// Only a reservation locks an escrow. What else a move adds to or frees from its
// committed sum is inserted as a delta; whoever locks the row folds, and counts only
// what its own DELETE returned (escrow_deltas.go). The sum of an escrow is its row and
// its open deltas together, at one moment.
//
//	move ─same commit─▶ escrow_deltas ─folded by an admission or the loop─▶ escrows
//
// A change that writes more than its case has a transaction (beside.go): both are
// committed, or neither. It has one of its own on that connection; deaths whose
// handlers begin share theirs among themselves (deathbatch.go).
//
// Each statement that writes receipts leaves word of them in the outbox. One process
// at a time, the holder of a lock that goes with its connection, numbers what is
// committed (sequencer.go): one order of all receipts, without gaps, in which those
// of a case stand as they happened. A transaction that commits late comes late.
//
//	receipts ─same commit─▶ outbox ─sequencer─▶ event log ─cursor─▶ readers
//
// Behind that order the list of dead letters is kept for searching (projection.go): of
// each case that is told of, its dead runs as they are now. A search reads which shapes
// of letters a filter leaves, chooses a way through the indexes by their numbers
// (letterplan.go), and reads what it found from runs and cases.
//
//	event log, outbox ─▶ letters, letter_shapes ─plan─▶ run ids ─▶ runs, cases
//
// What a submission fixed is bound to its receipt: a run is read together with the terms
// of its submitted receipt (terms.go), and triggers refuse to change it in every session
// (guards.go). A migration that has to rewrite evidence, or what is bound to it, disables
// those triggers inside its own transaction, enables them there again, and leaves a
// receipt of operations that says so.
//
// A bulk plan is stored with its letters and the heads of their cases (bulkplan.go).
// Its items are worked on by whoever holds its lock (bulklock.go); what became of each
// is written once (bulkitems.go), and where the plan stands moves with its receipt
// (bulkmove.go).
//
// # Roles
//
// The owner of the schema migrates it, and could turn the triggers off. All others connect as
// the app role (approle.go). The database administrator makes it, with a password of their
// choice; a Migration that names it grants it what processes need, and the database remembers
// it, so that every later migration grants it what is new and takes back what is too much. It
// has SELECT, INSERT, UPDATE and DELETE on a table but for what a guard refuses altogether
// (of receipts and event_log SELECT and INSERT are left), SELECT on what only migrations write,
// and USAGE on sequences. It needs no EXECUTE: all functions are those of triggers. A role is
// refused that owns the database or something in the schema, is a superuser, makes roles, or is
// a member of such a one. A process that executes and lacks a privilege does not start.
//
// # House
//
// May import background, settlement, receipts, retrypolicy, internal/failpoint,
// internal/signature, sqlx, lib/pq and goose.
// Only package postadjudication imports it. It decides nothing about retries or
// settlements, knows no Redis, and makes no time of its own.
package postgres
