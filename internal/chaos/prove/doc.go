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
// # Mutants
//
// The table has the guards that somebody thought of. Mutate changes every condition on money of a package (if
// conditions, operands, cases, the AND of statements, assignments to fields of money), one at a time. All mutants
// are in one test program of each package, behind their numbers (mutantswitch.go).
// Each test of the package, and each that the table names for its files or that is at its public door, first records the
// mutants that it meets, which are those that change something in it. Then each mutant is run against the tests that meet it, those of the
// package first. A mutant is killed if a test fails or hangs with it, and passes without it right after. Mutate reports
// each mutant that no test notices, and the score. A mutant that does not compile does not count, nor one that equivalents.go lists
// as equal to the product. The seed decides the order, so that a sample can be repeated, and a file of results lets a later
// run go on.
//
// # House
//
// Only the chaos command imports it.
package prove
