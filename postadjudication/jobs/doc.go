// Package jobs enqueues jobs, leases them to remote workers, and records their answers. A job is a task
// that moves no money, or an adjudication that a remote worker pays.
//
// # Promise
//
// A job that was enqueued is committed, and ends as succeeded, cancelled or discarded, or as an open
// dead letter for a person, whatever happens to this process, to its workers, or to Redis. Two
// workers never hold one job at once. Every attempt, its end and every change are receipts of the
// job's case, in the commits that make them.
//
//	Enqueue ──▶ journal          Cancel, Activate ──▶ journal
//	Fetch ──▶ background.Fetcher ──▶ a lease ──▶ Ack, Nack, HandBack ──▶ decide ──▶ journal
//	                                   ▲ Heartbeat
//	Find, Failures ◀── journal   Retry, Delete: a dead letter by the id of its job ──▶ casework
//
// A job has an id that its client gives or that is made for it. It is unique in its tenant, for good,
// and stays when the job is retried: its case is named by it, and each retry is a run of that case. An
// adjudication has the id of its run, so that a worker answers for one run only; the id of an earlier
// run leads to the newest one.
//
// # Dependencies
//
// The payload of a job is its envelope as Open Job Spec has it: family.go reads
// from it what a lease needs, and knows no more of it. That of an adjudication is made from its request.
// The package must not know HTTP.
package jobs
