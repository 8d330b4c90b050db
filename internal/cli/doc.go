// Package cli is the command line: it reads arguments, calls the library, and says
// what came of it, in tables for people or as one JSON object for programs.
//
// Standard output holds the answer and nothing else; progress, logs and errors go
// to standard error. The exit code says whose turn it is (see Execute).
//
// Commands of dead letters work on the library or ask a server, by the same code: they
// know only a Backend, of which there are two.
//
//	dlq command ──▶ Backend ──▶ local: postadjudication.Service on the database
//	                     └──▶ remote: internal/client, with the key in RECOURSE_KEY
//
// The package may import internal/app, internal/api and internal/access for their words,
// internal/intake and the public packages. It decides nothing about retries or
// settlements: money is moved by the library or a server, never here.
package cli
