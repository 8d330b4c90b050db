// Package demo settles a file of adjudications with nothing to configure: it starts the
// servers, submits every line, waits until every run has ended, and compares the state of
// Recourse with the escrow service's own ledger.
//
//	Start ─▶ Run (submit ─▶ wait ─▶ collect ─▶ check) ─▶ Show ─▶ Close
//
// If it serves pages, /demo/ repairs the escrow service and advances the clock.
//
// On a named Postgres it works in a database that it creates and drops. On a named Redis it
// works in an empty logical database, and removes only its own keys. It creates and migrates
// the database as its owner, and works on it as a role that owns nothing: always on a private
// Postgres, on a named one if both roles are named.
//
// It knows no SQL and no command line.
package demo
