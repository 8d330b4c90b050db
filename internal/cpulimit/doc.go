// Package cpulimit leaves part of the processors to everything else while requests compute.
//
// # Promise
//
// Of the work that is handed to a Limit, no more runs at the same time than New was given.
// Tenants that wait take turns: however much one of them asks for, another waits for at most
// one piece of work of each. A wait ends with its context.
//
// # House
//
// Imports the standard library. Work that is handed over is short: it holds no lock, and waits
// for nothing but what DoReading gives it to read.
package cpulimit
