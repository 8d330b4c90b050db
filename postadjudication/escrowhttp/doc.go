// Package escrowhttp calls an escrow service over HTTP and says what is known
// of the money afterwards.
//
// # Wire
//
// An execution is
//
//	POST {base}/v1/executions
//	Content-Type: application/json
//	Idempotency-Key: <operation key, 64 hexadecimal digits>
//	Recourse-Generation: <of the adjudication, from 1>
//	Recourse-Not-After: <RFC 3339, UTC>
//
// with the stored request as its body, the same bytes on every attempt. Success
// is 200 or 201 with Content-Type application/json (or any +json) and
//
//	{"operation_key":"<ours>","status":"executed","moved":{"minor":12500,"currency":"USD"},"reference":"..."}
//
// where the status of a repeated key is "already_executed" and moved is what the
// key has moved in all. A lookup is GET {base}/v1/executions/{operation key}: 200
// with the same body, or 404 with {"operation_key":"<ours>","status":"not_executed"},
// by which the service states that the key moved nothing and that no call it has
// already received will. One that it has not received yet may, and a service that has
// forgotten the key says the same: the 404 is believed only after Config.InFlight, and
// only within Config.KeyLifetime or Config.LookupLifetime.
//
// # The fence
//
// The last byte of a request leaves only while its claim is fresh (see
// postadjudication.Call.Fresh), asked behind dial and TLS. What is left is a machine
// that stands still between that check and the wire, and a network that keeps a whole
// request for long. A service closes that too, and can't be paid both ways, if it refuses
// (422) what it takes up after Recourse-Not-After by its own clock, and what has a
// lower Recourse-Generation than it has executed or refused for the same transaction
// receipt. The time is that of the claim plus the call bound and the time limit:
// nobody waits for the answer any more. Both headers change between attempts or
// generations; the body does not.
//
// # What an answer means
//
//	answer                                                     class         retry
//	200, 201, body names our key, our currency, amount >= 1    executed      -
//	the same with already_executed, not more than was asked    executed      -
//	no connection was made (refused, no such host); 425; 429   not_executed  yes
//	the last byte was kept back: the claim was too old         not_executed  yes, spending nothing
//	no answer, reset, time-out, 408, 5xx, 202, 3xx, 409        unknown       yes
//	any other 2xx, or one that can't be read as above          unknown       yes
//	any other 4xx                                              not_executed  no
//	anything else                                              unknown       yes
//
// An amount below the one asked for is a partial execution, whether new or
// repeated: a service that moved a part and lost its answer can only repeat that
// part. "Already executed" with more than was asked contradicts the request that
// was sent under the key, so it is unknown. A redirect is never followed, and a
// request is never sent twice for one attempt: its body can't be rewound, so that
// net/http can't replay it on its own.
//
// A service that answers otherwise is described by [Config.Table].
//
// # Bounds
//
// Whatever the service does, a call holds one response header of at most 64 KiB
// and [Config.MaxBody] bytes of body, ends with its context, and waits no more
// than 100ms for the text of an error whose status has already decided.
//
// A trace that the context is part of is told to the service as traceparent.
//
// The package may import postadjudication, settlement, internal/strictjson, internal/redact,
// OpenTelemetry's API and the standard library. It must not know of runs, policies, storage or logs.
package escrowhttp
