// Package cli is the command line: it reads arguments, calls the library, and says
// what came of it, in tables for people or as one JSON object for programs.
//
// Standard output holds the answer and nothing else; progress, logs and errors go
// to standard error. The exit code says whose turn it is (see Execute).
//
// Here are the root and the commands that are alone; groups of commands and what
// they share are packages below, of which none imports this one:
//
//	cli ──▶ dlq, policy, history ──▶ backend ──▶ view ──▶ shell ──▶ screen
//	 ├──▶ demo, doctor                └──▶ internal/client, or the library
//	 └──▶ all of the others
//
// The package may import internal/app, internal/api and internal/access for their words,
// internal/intake and the public packages. It decides nothing about retries or
// settlements: money is moved by the library or a server, never here.
package cli
