// Package webhookdelivery sends public events to webhooks: the reading, the order, the requests, and
// when to try again.
//
//	event log ─▶ feed, one a tenant ─▶ queue, one a webhook ─▶ client ─▶ 2xx ─▶ position
//	                                     ▲                        │
//	                                     └──── backoff ◀── anything else
//
// Package webhooks says what is promised. Here, round follows the webhooks and writes how far they
// are, in the one process that holds the lock; delivery sends for one webhook; pacer makes webhooks
// wait while the process is busy with runs.
//
// It imports the event log, the store of webhooks, and what receipts of webhooks state; of package casework
// only Sleep and NewID. It must not know who may change a webhook, and how people reach it.
package webhookdelivery
