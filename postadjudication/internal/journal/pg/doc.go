// Package pg is what the journal needs of Postgres, without a word about runs: pools of connections
// with settings and idle time-outs, statements that are prepared when they are first used, batches of
// rows that share a statement and a commit, rows as arrays for unnest, slow paths for statements that may wait for a lock, session locks, and the
// classes of errors.
//
// # Promise
//
//   - A Batcher answers each row once, with the outcome of the statement that contained it. No batch
//     has two rows of one key. What was handed over before Close is written.
//   - A connection that receives no byte within the limit of its pool is closed, and with it every
//     connection of the same IdleTimeout that has been silent for as long: none blocks for ever on a
//     peer that was lost.
//   - WaitForLock lets one row per lock wait, for LockTimeout at most, and no row wait for a
//     connection. Acquire waits for a connection of a SlowPath, for LockTimeout at most.
//   - Exec passes the two failpoints of a statement.
//
// # House
//
// It must not know a table, a run, a receipt, nor package background: errors that mean something to
// callers are given to it.
package pg
