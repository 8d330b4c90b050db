// Package door has what the HTTP doors of a process share: it finds out who calls, checks the request, and
// says why one is refused. Each door is a Mux: it has routes of its own, and a Format by which it renders refusals.
//
// # Promise
//
// No route but a public one is reached without a Caller: an access key gives the tenant, the principal
// and the roles. A caller whose roles do not allow the action of a route is refused with a receipt. A
// request is refused as a whole if its query or its body can be understood in two ways. A request
// under an Idempotency-Key is safe to repeat for 24 hours, unless its route stores no answers. Failures
// to show a valid key, refusals, streams, batches and reads are limited for all doors of a Door together.
//
//	request ──▶ authenticate: key ──▶ Caller, or 400, 401, 403, 429
//	        ──▶ Route: role, query, media type, size, JSON, Idempotency-Key
//	                                     ──▶ or 400, 403, 408, 409, 413, 415, 422, 429
//	        ──▶ Handler ──▶ answer, or an error ──▶ RefusalOf ──▶ Format.WriteRefusal
//
// # Dependencies
//
// It imports internal/access for keys and roles, and the service for its keys, stored answers and
// errors. It must not know a format: problem+json and Open Job Spec are those of their doors.
package door
