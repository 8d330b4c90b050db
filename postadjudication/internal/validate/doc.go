// Package validate checks what people and programs send: texts, identifiers, policies, durations
// and JSON. Each check returns a *refusal.FieldError that names the field and says what it must be.
//
// It promises that no value which it refuses for holding a secret is repeated in an error. It
// does no I/O, and must not know any request.
package validate
