// Package events makes receipts public: each receipt gives none, one or several events.
//
// An event is a pure function of its receipt. There is no second log: the receipts of a tenant, in their
// order, give its events in order, each once, and the same at every reading. A version that makes more
// receipts public must leave the events of the others as they were.
//
// The package imports receipts and the standard library only. It must not know how receipts are
// stored or numbered, or how events are sent.
package events
