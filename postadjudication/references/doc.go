// Package references says which values of a tenant are references of banks, and no numbers of cards.
//
// A number of a card and a reference of a bank can be the same digits: both are checked by the method of Luhn.
// Recourse refuses what looks like a card, because ids and payloads are kept for ever. A [Policy] of a tenant names
// the fields that hold references, and by which [Scheme] or pattern.
//
//	value ──▶ [Matcher.Match]: the field has a rule that takes the value? ──▶ its canonical spelling
//
// A policy takes a value only as a whole. A reference has one spelling: KID, OCR and FIK are their digits alone, and RF
// is in capitals without blanks. Match also recognises a reference with blanks, or behind the name of its scheme, and
// returns the canonical spelling: the caller decides whether to refuse or to rewrite it.
//
// A rule is as wide as its scheme. An OCR number is any number that passes the check of Luhn, so a rule "ocr" takes every
// such number in its field, the numbers of cards too; so does a rule "kid" of modulus 10. A length narrows a rule.
//
// The package does no I/O and reads no clock. It knows neither requests nor receipts, and decides nothing about
// secrets: whoever asks still refuses tokens, keys and passwords.
package references
