// Package view shows values of the library to people: a case, a plan, circuit breakers, retry
// policies. It holds the views that more than one package of commands uses.
//
// # Promise
//
// A view shows its arguments and reads nothing else. Amounts have their currency, times are
// UTC. Views are for people; programs use the JSON output.
//
// # House
//
// It knows no command and no backend, and of flags only those of the members of a filter.
package view
