// Package client asks a recourse server that runs elsewhere, over its HTTP API.
//
// # Promise
//
// A request that changes something carries an Idempotency-Key and is done once: when its
// answer is lost, or the server asks to wait, the client sends the same request again. A
// refusal is the error that the library refuses with where it has one, else a
// *ProblemError; a request without an answer is an *UnreachableError. The key is shown to
// the server of the Config only: a redirect is not followed, no proxy is used unless
// asked for, and over plain http the key goes to this machine only.
//
//	Config ──▶ New ──▶ Client ──▶ DeadLetters, Bulk, Rules, Keys, Policies, Cases, ...
//	                     └──▶ /api/v1, as the tenant and the principal of the key
//
// # House
//
// May import internal/api and internal/access for their words, and the public packages.
// It knows no flags, no exit codes and no environment, and opens no database.
package client
