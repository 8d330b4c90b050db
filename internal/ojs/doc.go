// Package ojs is the door for Open Job Spec, /ojs: clients enqueue jobs, workers in any language fetch
// them and answer for them, and operators see to their dead letters.
//
// # Promise
//
// It answers as the specification says, at levels 0 and 1, with the extension for dead letters; the
// manifest claims no more. A job that is answered 201 is committed. A refusal is an envelope of the
// specification with a stable code, changes nothing but the list of queues, and names the member or parameter that is wrong; it
// repeats no value, and does not tell whether another tenant has such a job.
//
//	request ──▶ internal/door: key, role, size, media type, Idempotency-Key ──▶ or a refusal
//	        ──▶ an operation: internal/ojs/spec reads the body ──▶ postadjudication/jobs, bulk, replay
//	        ──▶ spec.Render ──▶ answer
//
// Reasons that receipts keep begin with "Open Job Spec: ". In test mode, which only a process with private
// servers has, /test/reset gives each caller an empty tenant, and /test/clock moves the clock forward.
//
// # Dependencies
//
// What the specification says is in internal/ojs/spec, what a job is in postadjudication/jobs. The package
// decides nothing about jobs, and contains no SQL.
package ojs
