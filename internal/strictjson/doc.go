// Package strictjson reads JSON that means the same to every reader.
//
// encoding/json lets pass what other readers take otherwise: a member given twice (the last wins here, the first
// elsewhere), a member whose name differs from a field's in case, half of a surrogate pair, bytes that are not
// UTF-8. Whatever checks a request before us, or an answer behind us, would see another one. [Check] and [Decode]
// refuse them, each with an [*Error] that names the member and never repeats a value.
//
// The package is pure: standard library only, no I/O. It is used at every door: bodies of the API, lines and files
// of the command line, filters and rules, and the answers of escrow services.
package strictjson
