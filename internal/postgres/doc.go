// Package postgres is the journal: the append-only record of all runs and cases, in
// Postgres.
//
// # Promise
//
// A run, its case, its escrow and its receipts change together, in one statement and one
// commit, or not at all. A transition is written only if the case's head and the run's
// state, attempt, token and cancel request are still those it was decided on; otherwise the
// caller reads again and decides again. A repeated request returns what was written the
// first time.
//
//	Submit ──▶ open statement ──exists──▶ read ─▶ Decide ─▶ transition statement
//	Apply  ──▶ (cache or read) ─▶ Decide ─▶ transition statement ──conflict──▶ read ─▶ Decide ...
//
// Concurrent callers share statements (pg_batcher.go). Batches and callers' transactions
// skip rows that another transaction has locked. Of the skipped rows, one per case or
// escrow waits for the lock, for two seconds at most, on a connection of a slow path
// (pg_slowpath.go); no row waits for a free connection there. Locks are taken in one order
// everywhere: cases, runs, escrows, each by id.
//
// Only a reservation locks an escrow. Every other transition inserts what it adds to or
// frees from the committed sum as a delta. Whoever locks the escrow's row folds the deltas,
// and counts only those its own DELETE returned (escrow.go). The sum of an escrow is its
// row and its open deltas together, at one moment.
//
//	transition ─same commit─▶ escrow_deltas ─folded by a reservation or by the loop─▶ escrows
//
// A change with a SideEffect writes more than its case, in one transaction: both are
// committed, or neither. The transaction runs alone on a connection of a slow path; deaths
// whose handlers begin share one transaction (handlers.go).
//
// Each statement that writes receipts adds a row to the outbox. One process at a time, the
// holder of a session lock, numbers what is committed (sequencer.go). The result is one
// order of all receipts, without gaps, in which the receipts of a case keep their order. A
// transaction that commits late is numbered late.
//
//	receipts ─same commit─▶ outbox ─sequencer─▶ event log ─cursor─▶ readers
//
// The search index of dead letters follows that order (search_index.go). For each case with
// a new receipt it stores the case's dead runs as they are now. A search reads which facet
// groups the filter may match, chooses an access path by their counts (search_plan.go), and
// reads the rows it found from runs and cases.
//
//	event log, outbox ─▶ letters, facet_groups ─plan─▶ run ids ─▶ runs, cases
//
// What a submission fixed is bound to its receipt: a run is read together with the terms of
// its submitted receipt (snapshot.go), and triggers refuse to change it in every session.
//
// A bulk plan is stored with its dead letters and the heads of their cases
// (plans_build.go). The holder of the plan's lock works on its items (plans_state.go). The
// outcome of each item is written once (plans_items.go), and the plan's state changes
// together with its receipt (plans_state.go).
//
// The schema is that of internal/schema. The columns of cases, runs and receipts are described
// once (columns.go): the parameters of the statements that write transitions are derived from
// the description, and tests compare it with the schema and with what snapshots read.
//
// # House
//
// May import background, settlement, receipts, retrypolicy, its packages migrations and stored,
// internal/access, failpoint, pgurl, signature and tenantlimit, sqlx, lib/pq, goose and
// golang-lru. What an audit must agree on with the journal is in package stored.
// Only package postadjudication imports it. It decides nothing about retries or
// settlements, knows no Redis, and reads no clock for what it stores.
package postgres
