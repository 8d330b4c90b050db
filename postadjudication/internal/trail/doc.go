// Package trail reads the schema recourse for an audit, through database/sql: the receipts of
// tenants, the rows that the receipts are about, and the contradictions between rows.
//
// The package promises that it changes nothing and takes no lock: a role that may only SELECT
// suffices, and so does a standby. A method reads what it returns at one moment, unless it streams: then
// each page is of a moment of its own. What streams keeps one page in memory.
//
// It reads only columns that an audit compares, by statements of its own: whoever reads evidence
// through the code that wrote it would repeat its faults. What the writer must agree on (words in
// columns, the statements about receipts) is in package internal/schema/stored. The package
// knows neither the journal nor the engine nor the Service.
package trail
