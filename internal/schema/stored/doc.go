// Package stored says what both who writes the database (the journal) and who only
// reads it (an audit) must agree on: the version of the schema, the triggers that keep evidence,
// words in columns, and the statements that both read by. Each stands here once.
//
// The package promises that its functions change nothing: they need SELECT on the schema recourse
// and nothing else, and work on a standby. It knows neither the engine nor the journal.
package stored
