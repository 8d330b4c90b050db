// Package archive stores files that are written once and never changed: gzipped JSON lines,
// in a directory or any object store. Where the store is a Remover, a file that turned out to
// be needless may be removed.
//
// # Promise
//
// When Put returns, the whole file is on stable storage under its name. Before that nothing
// is: a reader never sees part of a file, also after a crash. A record that was written twice,
// because the process crashed after the first write, is read once: the newest.
//
//	records ─▶ Encode ─▶ Store.Put ─▶ temporary file ─▶ fsync ─▶ rename ─▶ fsync of the directory
//	records ◀─ Read (each id once, the newest) ◀─ Store.Open ◀─ Store.Names
//
// # House
//
// It knows nothing of letters, runs or money, makes no names and has no clock.
package archive
