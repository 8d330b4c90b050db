// Package signature groups failures by cause: a signature is the type of an error, and its
// message without the variable parts.
//
// # Promise
//
// The same failure has the same signature, whichever transaction, time, address or amount it
// names. A signature is readable, and at most MaxText bytes long. The remaining parts of the
// message are unchanged byte for byte, so that a search in the signature finds what a search
// in the message would.
//
//	http.refused, "account 4711 of \"Jane\" closed at 10:04"  ──▶  http.refused: account # of "#" closed at #
//
// In JSON the names of members remain, and values of the form of a code:
//
//	http.refused, {"code":"account_closed","holder":"Jane"}    ──▶  http.refused: {"code":"account_closed","holder":"#"}
//
// # House
//
// Pure: no I/O, no clock, no log; standard library only.
package signature
