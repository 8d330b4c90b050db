// Package cpulimit leaves part of the processors to everything else while requests compute.
//
// # Promise
//
// Of the work that is handed to Do, no more runs at the same time than New was given. A wait
// ends with its context.
//
// # House
//
// Imports the standard library and its semaphore. Work that is handed over is short: it holds
// no lock, and waits for nothing.
package cpulimit
