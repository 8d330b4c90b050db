// Package receiptstest holds what a stored receipt log promises, as a suite that any implementation runs
// ([TestLog]), and a log in memory that keeps the promises while being a harder companion than a database
// ([Memory]). It is for tests only: it imports testing, and nothing of the product but receipts.
package receiptstest
