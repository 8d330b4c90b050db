// Package backend is where the commands about one tenant do their work: on the database,
// or at a server. Commands know a Backend only, by the same code for both.
//
// # Promise
//
// Both backends refuse with the same errors, which end the program with the same exit
// codes. At a server the key says whose rows are meant and in whose name something is
// done, so that flags which mean nothing there are refused. What only reads needs no
// Redis, and goes on where triggers are off, with a warning.
//
//	Flags ──▶ With ──▶ local: postadjudication.Service on the database
//	              └──▶ remote: internal/client, with the key in RECOURSE_KEY
//	command ◀── Backend: DeadLetters, Bulk, Rules, Keys, Policies, Cases, People, Registers
//
// Where something takes a second person, With answers with the plan and with the line that
// this person types.
//
// # House
//
// May import internal/app, internal/client, internal/api and internal/access for their
// words, internal/cli/shell, internal/cli/view, cobra and the public packages. It defines
// flags and no command, and decides nothing about retries or settlements.
package backend
