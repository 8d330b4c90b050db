// Package eventlog gives committed receipts their positions in the order of events, and reads the
// public events of a tenant by them.
//
//	receipts ─▶ outbox ─▶ sequencer, in one process at a time ─▶ positions ─▶ Events, WaitEvents, After
//
// It promises that a reader that continues from any position it was given misses no event, and that
// an event has the same position at every reading.
//
// It imports the journal, the events of receipts and the errors of package refusal; of package casework only
// Sleep. It must not know who reads: subscribers, webhooks, the API.
package eventlog
