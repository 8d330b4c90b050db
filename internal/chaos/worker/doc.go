// Package worker is the process that tests and the chaos runner kill: a real
// recourse on given servers, which reads commands from its standard input.
//
// # Promise
//
// A program becomes a worker when it calls Main first and the environment has
// Settings. It opens the service, arms its failpoint, executes what is due, and answers
// commands, one JSON object a line, until its input ends or it is sent SIGTERM; then it shuts
// down gracefully. A reply is written only when the service has answered: without a reply the
// outcome of the command is unknown.
//
// # House
//
// It must not know of faults, other workers or the verification.
package worker
