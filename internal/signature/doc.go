// Package signature tells failures of one cause from those of another: the type of
// an error, and its message without the parts that differ from one time to the next.
//
// # Promise
//
// The same failure has the same signature, whichever transaction, moment, address or
// amount it names; it can be read by people and is at most MaxText bytes. What is
// left of the message is there byte for byte, so that a search in it finds what a
// search in the message would.
//
//	http.refused, "account 4711 of \"Jane\" closed at 10:04"  ──▶  http.refused: account # of "#" closed at #
//
// # House
//
// Pure: no I/O, no clock, no log; standard library only.
package signature
