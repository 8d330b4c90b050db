// Package journaltest gives the tests of the journal and of what is built on it a real database, an
// open journal, plain runs with the transitions that a family without a settlement decides on, and
// a connection pooler that behaves like PgBouncer.
//
// It decides nothing that the product decides otherwise, and changes rows only through the journal.
// Used by tests only.
package journaltest
