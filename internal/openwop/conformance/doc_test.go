// Package conformance tests a host of OpenWOP v1 for the dead-letter surface of RFC 0053, by HTTP alone:
// what the specification says of discovery, runs, events, forks, idempotency and errors, and the three
// duties of a host that advertises deadLetter. Each test is named by what it requires.
//
// It tests the host at OPENWOP_BASE_URL, with the key OPENWOP_API_KEY, if these are set. Else it starts
// two of its own: one in test mode, and one as production has it, with keys. Tests that need workflows for
// conformance, the seam or the clock run against the first one only.
package conformance_test
