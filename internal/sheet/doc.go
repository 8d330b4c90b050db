// Package sheet writes tables as CSV that is safe to open in a spreadsheet.
//
// # Promise
//
// The output is RFC 4180: lines end in CR LF, and every text below the header is quoted. A
// text that a spreadsheet would take for a formula is prefixed with an apostrophe, which
// spreadsheets don't show; so is text after a semicolon, where some spreadsheets start a new
// cell. A program that reads the output removes these apostrophes. A byte order mark at the
// beginning of a text is dropped. Controls other than tab and line ends, and format characters, are
// replaced by U+FFFD, so that a terminal can show the output. Numbers are written unquoted, so that they can be summed. A
// line is written whole; if the writer fails, the line may be incomplete and is the last.
// NewTextWriter writes for people instead of programs: a spreadsheet keeps each of its texts, times and long numbers.
//
//	"=HYPERLINK(...)"  ──▶  '=HYPERLINK(...)        -250 (a number)  ──▶  -250
//
// # House
//
// It does no I/O but to the given writer, and knows nothing of what the tables are about.
package sheet
