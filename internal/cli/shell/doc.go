// Package shell is the input and output of every command: it writes answers, in tables for
// people or as one JSON object for programs, asks for confirmation, parses arguments, writes
// files, and turns errors into one line and an exit code.
//
// # Promise
//
// Standard output holds only the answer, with --json exactly one object; questions, notes and
// errors go to standard error. If standard input is not a terminal, no question is asked. A
// file that a command writes is complete, or not there.
//
//	command ──▶ Shell.Answer ──▶ standard output
//	        ──▶ Shell.Confirm, Note ──▶ standard error
//	        ──▶ error ──▶ CodeOf, Shell.Report ──▶ exit code, one line
//
// # House
//
// It knows no command and no backend, and opens no database and no server.
package shell
