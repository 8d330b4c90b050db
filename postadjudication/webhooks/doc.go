// Package webhooks sends the public events of a tenant to its URLs, signed.
//
//	(none) ──Create──▶ active ──Pause, 410, no success for three days──▶ paused
//	                     ▲                                                  │
//	                     └────────────────────── Resume ────────────────────┘
//	active, paused ──Delete──▶ deleted
//
// It promises that every event of a wanted type is sent at least once, with the same id at every
// try; that of the events of one case none is sent before those ahead of it were accepted, as long
// as one process sends; that a webhook whose receiver fails delays no other; that nothing is skipped but by a person, with a
// receipt; and that no request goes to an address that the operator has not opened, if the address
// is private or of the machine itself.
//
// Bodies are CloudEvents 1.0 in structured mode. Signatures are those of Standard Webhooks.
//
// One process of all sends. It holds a lock, and writes positions over the connection that holds it.
// What a process had sent, but not written, when it died is sent again.
//
// The package imports internal/webhookdelivery, which sends, and nothing that changes runs. It must
// not know cases, dead letters, HTTP routes and the command line.
package webhooks
