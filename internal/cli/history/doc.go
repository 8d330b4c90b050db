// Package history lists the entries of a register, of which a tenant has several: what was
// done to keys and to plans, what keys were refused, how circuit breakers were moved.
//
// It is a package of its own because commands of different groups have the same history:
// Command is the whole command of a register, Page and Answer are for those that read it
// otherwise. It may import internal/cli/backend, internal/cli/shell, internal/cli/screen,
// cobra and the public packages, and knows no other command.
package history
