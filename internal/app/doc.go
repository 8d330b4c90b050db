// Package app puts a running recourse together: a service that executes
// settlements, its HTTP pages, and, where they are asked for, servers of its own.
//
//	Bind ─▶ (flags) ─▶ Parse ─▶ Start ─▶ Run ─▶ Close
//
// Start returns when the service may be used and the pages are listened for; Run
// executes until its context ends; Close gives everything back, in the opposite
// order of its making, also after a Start that failed. The binary and the
// end-to-end tests use the same Main.
//
// The pages are served on loopback unless the operator says otherwise, for they speak
// no TLS. The API and asynqmon ask for an access key, except on loopback with the
// escrow service for demonstrations. /livez and /readyz ask for none, and tell no more
// than whether the process works. /metrics asks for one unless this machine asks, or is
// at a listener of its own. The /stage/ of a demonstration asks for none, on loopback.
//
// Built with the tag production it has neither servers of its own nor the escrow service for
// demonstrations, and nothing that they need.
//
// The package may import postadjudication and its executors, background for its
// words, internal/api, internal/access, internal/fakeescrow, internal/localpg, asynq,
// asynqmon and miniredis. It must not know of commands, tables for people or SQL of the journal.
package app
