// Package shell is what every command has of the terminal: it answers, in tables
// for people or as one JSON object for programs, asks people, reads arguments, writes
// files, and turns errors into one line and an exit code.
//
// # Promise
//
// Standard output holds the answer and nothing else, and with --json exactly one object;
// what is asked, noted and wrong goes to standard error. Nobody is asked where standard
// input is no terminal. A file that a command writes is there whole or not at all.
//
//	command ──▶ Shell.Answer ──▶ standard output
//	        ──▶ Shell.Confirm, Note ──▶ standard error
//	        ──▶ error ──▶ CodeOf, Shell.Report ──▶ exit code, one line
//
// # House
//
// May import cobra, internal/cli/screen, and internal/app, internal/intake, internal/access
// and the public packages for their errors and words. It knows no command and no backend,
// and opens neither a database nor a server.
package shell
