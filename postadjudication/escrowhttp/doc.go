// Package escrowhttp calls an escrow service over HTTP and classifies the outcome for the
// money.
//
// # Wire
//
// An execution is
//
//	POST {base}/v1/executions
//	Content-Type: application/json
//	Idempotency-Key: <operation key, 64 hexadecimal digits>
//	Recourse-Generation: <of the adjudication, from 1>
//	Recourse-Not-After: <RFC 3339, UTC, with three decimals of the second>
//
// with the stored request as its body, the same bytes on every attempt; escrow.openapi.json describes
// its members. Success
// is 200 or 201 with Content-Type application/json (or any +json) and
//
//	{"operation_key":"<ours>","status":"executed","moved":{"minor":12500,"currency":"USD"},"reference":"..."}
//
// where the status of a repeated key is "already_executed" and moved is the total moved under
// the key. A lookup is GET {base}/v1/executions/{operation key}: 200 with the same body, or 404
// with {"operation_key":"<ours>","status":"not_executed"}. The 404 states that the key moved
// nothing and that no call which the service has received will move anything. A call that it
// has not received yet may still do so, and a service that has forgotten the key answers the
// same. So the 404 is believed only after Config.InFlight, and only within Config.KeyLifetime
// or Config.LookupLifetime.
//
// What is unambiguous is read in other forms, too: moved.minor written 12500.0 or 1.25e4, a
// number for reference, and a byte order mark. A text for moved.minor, another currency and
// a fraction of a minor unit are unreadable.
//
// # Accepted calls
//
// A service that ends calls later ([Config.Asynchronous]) answers 202 without a body, or 202 or 200 with
//
//	{"operation_key":"<ours>","status":"accepted"}
//
// where the status may also be "pending" or "processing". It gives the same answer to a lookup until the call
// has ended, and then 200 or 404 as above. A Retry-After says when it may be asked again.
//
// # Refusals
//
// The body of a refusal is text, or a JSON object, as application/json or application/problem+json
// (RFC 9457):
//
//	{"code":"account_closed","message":"account 47 is closed"}
//	{"error":{"code":"account_closed","message":"..."}}
//	{"type":"https://bank.example/problems/closed","title":"Account closed","detail":"..."}
//
// The first of code, error.code, error, error.type and type that is a text or a number, and has
// the form of a code, becomes Answer.Code; otherwise that is the HTTP status. Answer.Message is the
// code (the title, where the code is a URI), and the first of detail, message and error.message.
//
// # Fencing
//
// The last byte of a request is sent only while its claim is fresh (see
// escrow.Call.Fresh), checked after dial and TLS. Two gaps remain: a machine that is
// suspended between that check and the write, and a network that delays a whole request for
// long. A service closes both, and can't be made to pay twice, if it refuses (422) a request
// that it starts to process after Recourse-Not-After by its own clock, and one with a lower
// Recourse-Generation than it has executed or refused for the same transaction receipt.
// Recourse-Not-After is the time of the claim plus the call bound and the time limit: nobody
// waits for the answer any more. Both headers change between attempts or generations; the body
// does not.
//
// # What an answer means
//
//	answer                                                     class         retry
//	200, 201, body names our key, our currency, amount >= 1    executed      -
//	the same with already_executed, not more than was asked    executed      -
//	no connection was made (refused, no such host); 425; 429   not_executed  yes
//	the last byte was kept back: the claim was too old         not_executed  yes, spending nothing
//	no answer, reset, time-out, 408, 5xx, 202, 3xx, 409        unknown       yes
//	202, 200 of an asynchronous service, as above              unknown       accepted: it is asked, spending nothing
//	any other 2xx, or one that can't be read as above          unknown       yes
//	any other 4xx whose body names the idempotency key, or
//	states a payment under our operation key                   unknown       no (425, 429: yes)
//	400, 422 whose body can't be read, or is compressed        unknown       no
//	any other 4xx                                              not_executed  no
//	anything else                                              unknown       yes
//
// A refusal that says "this key was used with another request" proves nothing: that request may
// have been paid, as after a restore that lost the tail, or where two deployments share a service.
// The lookup of the key tells. So a service names the key in such a refusal: its body holds a word
// that begins with "idempoten", in any case, such as {"error":"idempotency_key_reused"}, as the
// answers of the IETF draft on the Idempotency-Key header do. An entry of Config.Table does not
// change that.
//
// An amount below the requested one is a partial execution, whether new or repeated: a service
// that moved a part and whose answer was lost can only repeat that part. "Already executed"
// with more than the requested amount contradicts the request sent under the key, so it is
// unknown. Redirects are never followed. A request is sent at most once per attempt: its body
// can't be rewound, so net/http can't replay it.
//
// [Config.Table] describes a service that answers otherwise.
//
// # Limits
//
// Whatever the service does, a call reads one response header of at most 64 KiB and
// [Config.MaxBody] bytes of body, ends with its context, and waits at most 100ms for the text
// of an error.
//
// The trace of the context is sent to the service as traceparent.
//
// It must not know runs, policies, storage or logs.
package escrowhttp
