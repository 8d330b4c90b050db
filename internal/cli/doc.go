// Package cli is the command line: it reads arguments, calls the library, and writes
// the result, in tables for people or as one JSON object for programs.
//
// Standard output holds only the result; progress, logs and errors go to standard
// error. Execute lists the exit codes.
//
// The package holds the root command, the single commands and small groups: breaker, cases, keys, people,
// receipts. Larger groups of commands, and the code they share, are packages below it; none of them but clitest imports it:
//
//	cli ──▶ dlq, policy, webhook, history ──▶ backend ──▶ view ──▶ shell ──▶ screen
//	 ├──▶ demo, doctor                └──▶ internal/client, or the library
//	 └──▶ all of the others
//
// It decides nothing about retries or settlements: only the library or a server moves money.
package cli
