// Package openwop is the door for OpenWOP v1, /v1 and /.well-known/openwop: clients discover that runs are
// dead-lettered, start runs, read and stream their logs, and fork and cancel them. It has the dead-letter
// surface of RFC 0053.
//
// # Promise
//
// A run that is answered 201 is committed. The log of a run is the same at every reading and only grows.
// A run whose attempts are used up has run.dead_lettered before its run.failed. It can be read and forked
// for the number of days in the discovery document (deadLetter.retentionDays); after that it is not found
// here, even if it is still stored.
// A fork keeps the operation key of its source: a settlement that was paid is not paid again. A refusal is
// an envelope of OpenWOP, changes nothing, and does not tell whether another tenant has such a run.
//
//	request ──▶ internal/door: key, role, size, media type, Idempotency-Key ──▶ or a refusal
//	        ──▶ an operation: internal/openwop/spec reads the body ──▶ postadjudication
//	receipts of the run's case ──▶ spec.Log ──▶ snapshot, poll, stream
//
// Reasons that receipts keep begin with "OpenWOP: ". In test mode, which only a process with private
// servers has, there are workflows for conformance tests, and a test endpoint that dead-letters a run
// (ExhaustPath).
//
// # Dependencies
//
// What OpenWOP says is in internal/openwop/spec. The package decides nothing about runs, and contains no
// SQL. Runs of jobs are not shown: they belong to internal/ojs.
package openwop
