// Package remote has the remote workers of the chaos runner, the load of jobs that they execute, and
// the verification of both.
//
// # Promise
//
// A program becomes a remote worker when it calls Main first and the environment has Settings. It
// fetches jobs at /ojs, posts their effects to the Ledger of the runner, and acknowledges them, each
// attempt in a manner that its seed draws: honestly, late, twice, with a failure, with a lie, or not at
// all, because it freezes or dies. To the ledger it is always honest: what it fetched, did, asked and was
// answered, and which of it was a lie. A payer does the same about the adjudications that it pays, with the key of its
// principal, whose Habit says how it lies. A Load enqueues jobs and has people cancel, retry and delete
// them, and records each answer.
//
// Verify judges by what they recorded, and by what /ojs shows at the end. It is pure.
//
// # Dependencies
//
// It imports nothing of ours: a remote worker is written in any language, and knows of the product what
// Open Job Spec and the guide of /ojs say. What a worker does with a job is behind process.work.
package remote
