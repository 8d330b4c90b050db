// Package schema makes and migrates the schema recourse of a database, and grants the role that
// processes connect as what they need of it.
//
// # Promise
//
// A Migration runs each migration in a transaction of its own, under a lock that keeps other
// migrating processes out, and may be run again. Before it changes anything, it refuses a schema
// that it can't read, a role that could turn off what protects evidence, and grants by which a
// running process would lose a privilege. After it, every trigger of stored.Triggers is in force.
//
// The schema is one page, migrations/00100_schema.sql. Triggers refuse to change evidence, and what
// a submission fixed, in every database session (stored/triggers.go); they are created after the migrations,
// so that a restore that left one out is repaired by the next Migration. A migration that has to
// rewrite evidence, or what is bound to it, disables those triggers inside its own transaction,
// enables them there again, and writes an operations receipt that records it.
//
// # Roles
//
// The owner of the schema migrates it, and could turn the triggers off. All others connect as the
// app role (approle.go). The database administrator creates it, with a password of their choice. A
// Migration that names it grants it what processes need. The database remembers it, so that every
// later migration grants it what is new and revokes what is too much. It has SELECT, INSERT, UPDATE
// and DELETE on a table, except what a trigger refuses altogether (of receipts and event_log SELECT
// and INSERT are left), SELECT on what only migrations write, and USAGE on sequences. It needs no
// EXECUTE: all functions are those of triggers. A role is refused if it owns the database or
// something in the schema, is a superuser, may create roles, or is a member of such a role. A
// process that executes and lacks a privilege does not start.
//
// # House
//
// It knows tables, roles and triggers. It must not know what a row means: no run, no receipt, not
// the engine, not the journal.
package schema
