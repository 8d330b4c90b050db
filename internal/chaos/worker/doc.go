// Package worker is the process that tests and the chaos runner kill: a real
// recourse on servers that it is given, told what to do over its standard input.
//
// # Promise
//
// A program becomes a worker when it calls Main first and Main reports that the
// environment says so. It opens the service, arms its failpoint, executes what is
// due, and answers commands, one JSON object a line, until its input ends or it is
// sent SIGTERM; then it shuts down gracefully. A reply is written only when the
// service has answered: who gets none does not know what became of the command.
//
// # House
//
// May import postadjudication, its HTTP executor, background, internal/failpoint
// and internal/fakeescrow. It must not know of faults, other workers or verdicts.
package worker
