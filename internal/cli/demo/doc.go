// Package demo settles a file of adjudications before an audience's eyes, with
// nothing to configure: it starts what it needs, hands everything over, waits until
// every run is at rest, and then holds what Recourse says against what the escrow
// service's own ledger shows.
//
//	Start ─▶ Play (hand over ─▶ rest ─▶ collect ─▶ judge) ─▶ Show ─▶ Close
//
// Where it serves pages, /stage/ lets an audience mend the escrow service and set the
// clock forward.
//
// A Postgres or Redis that is not its own it treats as a guest: it works in a
// database it creates and drops, and in a logical Redis database that it found
// empty, from which it takes away what it brought. It makes and migrates that database as
// its owner, and works on it as a role that owns nothing: of a private Postgres always, of
// another one when both roles are named.
//
// The package may import internal/app, internal/intake, internal/cli/screen and the
// public packages. It knows no SQL and no command line.
package demo
