// Package view writes for people what the library answers: a case, a plan, circuit
// breakers, retry policies. A view is here when more than one package of commands shows it.
//
// # Promise
//
// A view shows what it is given and asks for nothing. Amounts have their currency, times
// are UTC. Programs never read a view: they get the answer itself, as JSON.
//
// # House
//
// May import internal/cli/screen, internal/cli/shell for its words, and the public
// packages. It knows no flag, no command and no backend.
package view
