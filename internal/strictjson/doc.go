// Package strictjson reads JSON that means the same to every reader.
//
// encoding/json accepts what other readers interpret differently: a member given twice (the last wins here, the first
// elsewhere), a member whose name differs from a field's in case, half of a surrogate pair, bytes that are not
// UTF-8. A program that checks a request before this one, or reads its answer, would see another value. [Check] and
// [Decode] refuse such texts with an [*Error] that names the member and never shows a value.
//
// The package is pure: standard library only, no I/O. It checks all input: bodies of the API, lines and files
// of the command line, filters and rules, and the answers of escrow services.
package strictjson
