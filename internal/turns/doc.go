// Package turns leaves part of the processors to everything else while requests compute.
//
// # Promise
//
// Of the work that is handed to Do, no more runs at the same time than New was given: for
// OfProcess half of the processors, and at least one. A wait ends with its context.
//
// # House
//
// Standard library only. Work that is handed over is short: it holds no lock, and
// waits for nothing.
package turns
