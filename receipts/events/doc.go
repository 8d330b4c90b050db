// Package events makes receipts public: each receipt gives none, one or several events.
//
// An event is a pure function of its receipt. There is no second log: who reads the receipts of
// a tenant in their order reads its events in order, each once, and the same at every reading.
//
// The package imports receipts and the standard library only. It must not know how receipts are
// stored or numbered, or how events are sent.
package events
