// Package api is the HTTP API of Recourse, /api/v1.
//
// # Promise
//
// An access key identifies the caller. The key gives the tenant, and its principal is the
// actor of every action. An action that the key's roles don't allow is refused with a
// receipt. A request with anything that the API does not understand is refused as a whole,
// naming the field: an unknown member or query parameter, a member that is given twice or is
// null, a number that is not whole. Every refusal is application/problem+json (RFC 9457)
// with a stable code.
//
// An Idempotency-Key makes a POST or DELETE that changes something safe to repeat: for 24
// hours the same request gets the same answer. A refused request may be sent again under its key.
// Submitting adjudications needs no Idempotency-Key: its transaction, generation and content
// make it safe to repeat.
//
//	request ──▶ internal/door: key, role, query, size, JSON, Idempotency-Key
//	                                     ──▶ or 400/401/403/408/409/413/415/422/429
//	        ──▶ an operation: postadjudication.Service ──▶ answer, or problem
//
// An address that too often fails to show a valid key has to wait. A valid key always
// passes, also from behind the same proxy.
//
// With curl:
//
//	curl -H "Authorization: Bearer $RECOURSE_KEY" $URL/api/v1/dead-letters?letter=open
//	curl -H "Authorization: Bearer $RECOURSE_KEY" -H 'Idempotency-Key: ticket-17' \
//	     --json '{"reason":"the escrow service is mended"}' $URL/api/v1/dead-letters/$RUN/fork
//	curl -N -H "Authorization: Bearer $RECOURSE_KEY" $URL/api/v1/events/stream
//
// The API serves its description, openapi.json. A test compares the committed file with
// the code. After a change rewrite the file:
//
//	go run ./cmd/sandbox -durable=false go test ./internal/api -run TestTheOpenAPIDescriptionIsTheOneThatIsCommitted -rewrite
//
// # Dependencies
//
// It decides nothing about settlements or gates, and contains no SQL.
package api
