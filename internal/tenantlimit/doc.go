// Package tenantlimit limits how many functions run at the same time, fairly among tenants:
// functions that compute, so that part of the processors stays free for everything else, and
// functions that hold a connection to the database.
//
// # Promise
//
// A Limit runs no more functions at the same time than New was given, and no more of one
// tenant. Waiting tenants take turns: however much one tenant requests, another waits for at
// most one function of each. A wait ends with its context.
//
// After each function under Processors, and in Yield, what waits for a processor has its turn.
//
// # House
//
// A function must not wait for the limit that it runs under. Under Processors the functions should
// be short: they must hold no lock, and may block only on reads from DoReading's reader.
package tenantlimit
