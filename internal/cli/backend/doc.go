// Package backend executes the commands about one tenant, on the database or at a server.
// Commands use a Backend and do not know which of the two it is.
//
// # Promise
//
// Both backends return the same errors, which end the program with the same exit codes. At a
// server the access key determines the tenant and the actor, and flags for the database are
// refused. Read-only commands need no Redis, and work with a warning if triggers are disabled.
//
//	Flags ──▶ With ──▶ local: Service.As(tenant, actor) on the database
//	              └──▶ remote: internal/client, with the key in RECOURSE_KEY
//	command ◀── Backend: DeadLetters, Bulk, Rules, Keys, Webhooks, Policies, Cases, People, OperationLogs
//
// If an action takes a second person, With writes the plan and the command that this person runs.
//
// # House
//
// It defines flags but no command, and decides nothing about retries or settlements.
package backend
