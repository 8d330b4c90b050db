// Package webhook is the commands that create, show, change and delete webhooks.
//
// # Promise
//
// A secret is never an argument: a given one is read from a file or from standard input, and a
// generated one is printed once. A command at a server does what it does on the database.
//
//	create, rotate ──▶ the secret, once        pause, resume, replay, delete ──▶ the webhook as it is then
//	list, show, history ──▶ tables             test ──▶ what the receiver answered
//
// # House
//
// It sends nothing itself and knows no event: a server, or the library, does.
package webhook
