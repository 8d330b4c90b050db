// Package cpulimit limits how many requests compute at the same time, so that part of the
// processors stays free for everything else.
//
// # Promise
//
// A Limit runs no more functions at the same time than New was given. Waiting tenants take
// turns: however much one tenant requests, another waits for at most one function of each. A
// wait ends with its context.
//
// # House
//
// Imports the standard library. The functions should be short: they must hold no lock, and
// may block only on reads from DoReading's reader.
package cpulimit
