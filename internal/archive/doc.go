// Package archive keeps files that are written once and never changed: gzip over
// JSON lines, in a directory or behind any store of objects. One that was put for
// nothing may be removed, where the store is a Remover.
//
// # Promise
//
// When Put returns, the whole file is on stable storage under its name, and before
// that nothing is: a reader never meets half a file, also after a crash. What was
// written twice, because nobody lived to tell of the first time, is read once: the newest.
//
//	records ─▶ Encode ─▶ Store.Put ─▶ temporary file ─▶ fsync ─▶ rename ─▶ fsync of the directory
//	records ◀─ Read (each id once, the newest) ◀─ Store.Open ◀─ Store.Names
//
// # House
//
// Imports the standard library only. It knows nothing of letters, runs or money, makes
// no names and has no clock.
package archive
