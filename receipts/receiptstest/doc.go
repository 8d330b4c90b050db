// Package receiptstest tests the promises of a stored receipt log by a suite that any
// implementation runs ([TestLog]). It has a log in memory that keeps them under harder conditions
// than a database ([Memory]). It is for tests only.
package receiptstest
