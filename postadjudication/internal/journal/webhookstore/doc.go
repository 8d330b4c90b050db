// Package webhookstore keeps webhooks, and how far each is in the order of events.
//
//	Create, Update ─▶ webhooks           with a receipt, in one commit
//	Sender         ─▶ webhook_positions  by the one process that holds the lock
//
// It promises that no webhook changes without its receipt, and that positions are written only over
// the connection that holds the sender's lock, and only if no person has set the position since the
// sender read it.
//
// It must not know how events are sent, what a secret is, or what definitions mean.
package webhookstore
