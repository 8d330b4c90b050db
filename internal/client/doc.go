// Package client calls the HTTP API of a remote recourse server.
//
// # Promise
//
// A request that changes something carries an Idempotency-Key and is done once: if its
// answer is lost, or the server asks to wait, the client sends the same request again. A
// refusal is returned as the library's error for it, if it has one, else as a
// *ProblemError. A request without an answer returns an *UnreachableError. The key is sent
// to the server of the Config only: the client follows no redirect. Unless the Config allows
// it, the client uses no proxy and sends no key to another machine over plain http.
//
//	Config ──▶ New ──▶ Client ──▶ DeadLetters, Bulk, Rules, Keys, Webhooks, Policies, ...
//	                     └──▶ /api/v1, as the tenant and the principal of the key
//
// # House
//
// It knows no flags, no exit codes and no environment, and opens no database.
package client
