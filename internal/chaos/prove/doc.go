// Package prove proves that the tests and the verification of the chaos runs detect what
// they are for: it builds the product without one of its guards at a time, and the test that
// the table names for that guard must fail.
//
// # Promise
//
// A guard is a text that occurs exactly once in a file of the product. It is replaced by
// go build -overlay, so that the product has no switch for it, and no file changes.
// A guard is proven when its test passes with the guard, and fails without it within the
// limit. A changed product that does not compile, a missing test, and a test that does not
// end prove nothing, and have verdicts of their own.
//
// A guard that another one doubles can't be caught alone: it is listed with its double,
// and both are removed together.
//
// # House
//
// Only the chaos command imports it.
package prove
