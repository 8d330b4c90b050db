// Package spec says what OpenWOP v1 says about runs, without a server: the log of a run as its receipts
// give it, the snapshot of a run as its log gives it, what each mode of a stream shows, the discovery
// document, the bodies and parameters of requests, and the envelope of refusals.
//
// # Promise
//
//   - Equal input gives equal output. Time is an argument.
//   - The log of a run only grows: an event keeps its sequence. It has one of run.completed, run.failed
//     and run.cancelled at most, and that is its last event.
//   - run.dead_lettered comes between node.failed and run.failed and has no members but those of RFC 0053.
//   - A refusal names the member or parameter that is wrong, and never repeats its value.
//   - Every function takes any bytes. None panics.
//
// # Dependencies
//
// The package imports receipts, receipts/events, internal/strictjson and the standard library. It does no
// I/O and has no clock, goroutine or log. It must not know how runs are stored or executed, nor HTTP
// handlers.
package spec
