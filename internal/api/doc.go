// Package api is the HTTP API of Recourse, /api/v1.
//
// # Promise
//
// Who asks is known by an access key, and so is whose rows are meant: the tenant is the
// key's, the actor of whatever is done is the key's principal, and what the key's roles
// don't allow is refused with a receipt. A request is refused as a whole, naming the
// field, when it says anything that is not understood: a member or a query parameter
// that is unknown, one that is given twice or is null, a number that is not whole. Every refusal
// is application/problem+json (RFC 9457) with a code that does not change.
//
// An Idempotency-Key makes a POST that changes something safe to repeat: for 24 hours
// the same request gets the answer that it was given, and what was refused may be tried
// again. Handing over adjudications needs none, the retry key does it.
//
//	request ──▶ door: key ──▶ Caller, or 401/429
//	        ──▶ entry: role, size, JSON, Idempotency-Key ──▶ or 403/409/413/422
//	        ──▶ an operation: postadjudication.Service ──▶ answer, or problem
//
// Whoever fails to show a good key too often, by remote address, waits; a good key always
// passes, also from behind the same proxy.
//
// With curl:
//
//	curl -H "Authorization: Bearer $RECOURSE_KEY" $URL/api/v1/dead-letters?letter=open
//	curl -H "Authorization: Bearer $RECOURSE_KEY" -H 'Idempotency-Key: ticket-17' \
//	     --json '{"reason":"the escrow service is mended"}' $URL/api/v1/dead-letters/$RUN/fork
//	curl -N -H "Authorization: Bearer $RECOURSE_KEY" $URL/api/v1/events/stream
//
// What the API is, is written down in openapi.json and served; a test compares the two.
// After a change rewrite it:
//
//	go test ./internal/api -run TestTheOpenAPIDescriptionIsTheOneThatIsCommitted -rewrite
//
// # House
//
// May import postadjudication, internal/access, internal/intake, background and
// receipts for their words, and huma. It decides nothing about retries, settlements or
// gates, and knows no SQL.
package api
