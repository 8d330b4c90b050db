// Package prove proves that the tests and the judge of the chaos runs see what they are
// there for: it builds the product without one of its guards at a time, and what the
// table names for it must go red.
//
// # Promise
//
// A guard is a text that occurs exactly once in a file of the product. It is replaced by
// go build -overlay, so that the product has no switch for it, and nothing is left behind.
// A guard is proven when what catches it is green as the product is, and red without the
// guard, within the limit. That the changed product does not compile, that a test is not
// there, or that it does not end, proves nothing, and is told apart.
//
// A guard that another one doubles can't be caught alone: it is listed with its double,
// and both are taken away together.
//
// # House
//
// May import the private Postgres that the tests share. Only the chaos command imports it.
package prove
