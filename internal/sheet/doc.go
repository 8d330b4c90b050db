// Package sheet writes tables as CSV that is safe to open in a spreadsheet.
//
// # Promise
//
// What is written is RFC 4180: lines end in CR LF, and every text below the header is
// quoted. A text that a spreadsheet would take for a formula begins with an apostrophe,
// which spreadsheets don't show, and so does what stands behind a semicolon, where some
// begin a new cell; whoever reads the file by program takes it away with Text. A byte order
// mark at the beginning of a text is left out. Numbers are written as they are, so that they can be added
// up. A line is written whole or, when the writer fails, is the last.
//
//	"=HYPERLINK(...)"  ──▶  '=HYPERLINK(...)        -250 (a number)  ──▶  -250
//
// # House
//
// Pure but for the writer that it is given; standard library only. It knows nothing of
// what the tables are about.
package sheet
