// Package history lists the entries of a tenant's operation logs: changes of keys and plans,
// refused requests, and state changes of circuit breakers.
//
// It is a separate package because commands of different groups have the same history. Command is
// the complete command for an operation log; Page and Answer are for commands that read it in
// another way. It knows no other command.
package history
