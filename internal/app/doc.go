// Package app assembles a running recourse: a service that executes settlements, its HTTP
// pages, and on request private servers.
//
//	Bind ─▶ (flags) ─▶ Parse ─▶ Start ─▶ Run ─▶ Close
//
// Start returns once the service is usable and the pages are served. Run executes settlements
// until its context ends. Close releases everything in reverse order, also after a failed
// Start. The binary and the end-to-end tests use the same Main.
//
// The pages have no TLS, so they are served on loopback unless the operator allows more. The
// API and asynqmon require an access key, except on loopback with the escrow service for
// demonstrations. /livez and /readyz require none, and reveal only whether the process works.
// /metrics requires one, except for requests of this machine and at a listener of its own. The
// /demo/ of a demonstration requires none, and answers on loopback only.
//
// A build with the tag production has no private servers, no escrow service for demonstrations,
// and none of their dependencies.
//
// It must not know of commands, tables for people or SQL of the journal.
package app
