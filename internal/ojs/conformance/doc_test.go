// Package conformance is the black-box test of a server of Open Job Spec with dead letters.
//
// # Promise
//
// Each demand of the reference has an id in requirements_test.go and at least one test that carries it:
// TestDLQ_003_... tests DLQ-003. A test demands what the documents of the specification say; where they
// contradict each other or are silent it demands the side that the reference takes, and its comment says so.
// Nothing is skipped: a server that is missing, or lacks a route, is a failure.
//
// # Servers
//
// OJS_URL is the base of the server under test, such as http://127.0.0.1:8080. OJS_RESET_URL is the base of
// its test mode, OJS_URL if it is not given. OJS_KEY is an access key, for servers that require one. Without
// OJS_URL the tests build cmd/recourse and start it in its test mode, with servers of its own.
//
// A server in test mode requires no keys. So TestKEY_01 starts cmd/recourse a second time, as production has
// it: with keys, and a Postgres and a Redis that are named. It runs every test there that needs no test mode,
// as TestKEY_01_.../TestDLQ_003_...: each request has the key of the program, or the person, that makes such
// requests. servers_test.go lists the tests that need the test mode, 11, and those that run against both
// servers, 129, and checks that none is left out. The other TestKEY tests, 8, are of keys themselves: what a
// key may not do, and that no refusal tells whether a job exists. To test a server of somebody else alone,
// add -skip TestKEY_.
//
// Beyond the specification a server must have in its test mode
//
//   - POST /test/reset, which makes the world empty: no job, no dead letter, no rule, no event. A key stays
//     valid.
//   - POST /test/clock {"advance":"P181D"}, which moves the server's clock forward by a duration of ISO 8601
//     and answers after one round of retention at the new time.
//
// and, for rules of automatic replay, which the specification leaves to the configuration of a server,
//
//   - POST /ojs/v1/dead-letter/replay-rules with a rule, and DELETE .../replay-rules/NAME.
//
// # Time
//
// Times are compared with each other as the server made them, never with a clock of the test: the server's
// may have been moved. The bounds of the reference are asserted with the allowance slack.
//
// # Order
//
// Tests that need an empty world, or move the clock, are not parallel and begin with a reset. The parallel
// tests run after them, each in a queue of its own.
//
// # Dependencies
//
// The package speaks HTTP. It must not import a package of this repository.
package conformance_test
