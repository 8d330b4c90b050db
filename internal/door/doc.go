// Package door is what the HTTP doors of a process share: who calls, what a request may be, and why it
// is refused. Each door is a Mux with a Format: it has routes of its own, and renders refusals alone.
//
// # Promise
//
// No route but a public one is reached without a Caller: an access key gives the tenant, the principal
// and the roles. A caller whose roles do not allow the action of a route is refused with a receipt. A
// request is refused as a whole if its query or its body can be understood in two ways. An
// Idempotency-Key makes a request that changes something safe to repeat for 24 hours. Failures to show
// a valid key, refusals, streams, batches and reads are limited for all doors of a Door together.
//
//	request ──▶ authenticate: key ──▶ Caller, or 401, 403, 429
//	        ──▶ Route: role, query, media type, size, JSON, Idempotency-Key
//	                                     ──▶ or 400, 403, 408, 409, 413, 415, 422, 429
//	        ──▶ Handler ──▶ answer, or an error ──▶ RefusalOf ──▶ Format.WriteRefusal
//
// # Dependencies
//
// It imports internal/access for keys and roles, and the service for its keys, stored answers and
// errors. It must not know a format: problem+json and Open Job Spec are those of their doors.
package door
