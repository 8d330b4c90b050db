package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxDepth is the maximum nesting of objects and lists.
const maxDepth = 1000

// Check returns nil if text is one strict JSON value, else an [*Error].
func Check(text []byte) error { return check(text, nil) }

// CheckObject is like Check, and requires an object.
func CheckObject(text []byte) error {
	if err := Check(text); err != nil {
		return err
	}
	if kind := Kind(text); kind != "an object" {
		return &Error{Problem: "must be an object, is " + kind}
	}
	return nil
}

// CheckFor is like Check, and also refuses a member whose name differs from a field of v only in case. v is a
// struct, a pointer to one, or a list or map of them.
func CheckFor(text []byte, v any) error { return check(text, typeFieldsOf(reflect.TypeOf(v))) }

// Decode decodes text into v with [json.Unmarshal], after CheckFor. Members without a field in v are ignored.
func Decode(text []byte, v any) error {
	if err := CheckFor(text, v); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// Kind returns the type of a JSON value, judged by its beginning.
func Kind(value []byte) string {
	for _, c := range value {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return "an object"
		case '[':
			return "a list"
		case '"':
			return "a string"
		case 't', 'f':
			return "a boolean"
		case 'n':
			return "null"
		}
		return "a number"
	}
	return "nothing"
}

func check(text []byte, s *typeFields) error {
	if !utf8.Valid(text) {
		return &Error{Problem: "is not UTF-8"}
	}
	p := scanner{text: text, names: make([][]byte, 0, 32)}
	p.blanks()
	if err := p.value(s, 0); err != nil {
		return err.withPath()
	}
	p.blanks()
	if p.pos < len(p.text) {
		return &Error{Problem: fmt.Sprintf("has text after its end, at byte %d", p.pos+1)}
	}
	return nil
}

// maxName is the length, in bytes, up to which a path shows a name.
const maxName = 128

// Error is the problem of a text. Field is the path of the faulty member, its names joined by dots without
// list indexes; it is empty if the text as a whole is faulty.
type Error struct {
	Field, Problem string

	syntax  bool     // the text is not JSON, so no member is named
	members [][]byte // names of the members around the fault, the innermost first
}

func (e *Error) Error() string { return strings.TrimSpace(e.Field + " " + e.Problem) }

// within adds the name of a member around the fault.
func (e *Error) within(member []byte) *Error {
	if !e.syntax {
		e.members = append(e.members, member)
	}
	return e
}

// withPath sets Field from the names of the members around the fault.
func (e *Error) withPath() *Error {
	names := make([]string, len(e.members))
	for i, member := range e.members {
		names[len(names)-1-i] = Name(string(member))
	}
	e.Field, e.members = strings.Join(names, "."), nil
	return e
}

// Name returns the name of a member for a path. A long name is replaced by its length.
func Name(member string) string {
	switch {
	case member == "":
		return `""` // not the same as no name
	case len(member) > maxName:
		return fmt.Sprintf("(a name of %d bytes)", len(member))
	}
	return member
}
