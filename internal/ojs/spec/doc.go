// Package spec says what Open Job Spec says, without a server: the envelope of a job and its retry
// policy, the states of a job and what may be asked of it in each, the bodies that workers and
// operators send, filters, cursors, and the refusals on the wire.
//
// # Promise
//
//   - Equal input gives equal output. Time is an argument.
//   - What a client wrote comes back as it wrote it: arguments, meta and members that the specification
//     does not name are copied as text, numbers of any size included. Only the queue and the retry policy of
//     a run replace those of its envelope.
//   - What two readers could understand differently is refused: a member given twice, in another case or
//     in two places that disagree, half of a surrogate pair, and U+0000, which no store keeps.
//   - A refusal names the member or parameter, by the path under which it was given, and never repeats
//     its value.
//   - Every function takes any bytes. None panics, and none recurses deeper than internal/strictjson
//     allows.
//
// Where the texts of the specification contradict each other or are silent, the comment of what decides
// says which side it takes.
//
// # Null
//
// A member that is null where the specification has a type is refused as any other wrong type. The
// documents name null as the default of scheduled_at, delay_until, expires_at, unique, and of args_keys,
// meta_keys and period in it: there null is as good as absent. It is so as a result, too.
//
// # Dependencies
//
// The package imports retrypolicy, internal/strictjson, a parser of UUIDs, the canonical form of JSON,
// and the standard library. It does no I/O and has no clock, goroutine or log. It must not know how jobs
// are stored or executed, what a receipt or a settlement is, nor HTTP handlers.
package spec
