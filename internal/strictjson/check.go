package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep objects and lists are nested.
const maxDepth = 1000

// Check reports what is wrong with text as one JSON value: an [*Error], or nil.
func Check(text []byte) error { return check(text, nil) }

// CheckObject is Check of a text that must be an object.
func CheckObject(text []byte) error {
	if err := Check(text); err != nil {
		return err
	}
	if kind := Kind(text); kind != "an object" {
		return &Error{Problem: "must be an object, is " + kind}
	}
	return nil
}

// CheckFor is Check, and also refuses a member whose name differs only in case from that of a field of v, which is a
// struct, a pointer to one, or a list or map of them.
func CheckFor(text []byte, v any) error { return check(text, typeFieldsOf(reflect.TypeOf(v))) }

// Decode reads text into v as [json.Unmarshal] does, behind CheckFor. Members that v has no field for are passed over.
func Decode(text []byte, v any) error {
	if err := CheckFor(text, v); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// Kind names the type of a JSON value by how it begins.
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
		return &Error{Problem: fmt.Sprintf("has something after its end, at byte %d", p.pos+1)}
	}
	return nil
}

// maxName is how long a name is repeated in a path, in bytes.
const maxName = 128

// Error is what is wrong with a text. Field is the path of the member at fault, its names joined by dots without
// the places in lists; it is empty when the text as a whole is at fault.
type Error struct {
	Field, Problem string

	syntax  bool     // the text is no JSON, whichever member it stops in
	members [][]byte // the members that hold the fault, the innermost first
}

func (e *Error) Error() string { return strings.TrimSpace(e.Field + " " + e.Problem) }

// within notes the name of a member that holds the fault.
func (e *Error) within(member []byte) *Error {
	if !e.syntax {
		e.members = append(e.members, member)
	}
	return e
}

// withPath writes the path of the fault from the names of the members that hold it.
func (e *Error) withPath() *Error {
	names := make([]string, len(e.members))
	for i, member := range e.members {
		names[len(names)-1-i] = Name(string(member))
	}
	e.Field, e.members = strings.Join(names, "."), nil
	return e
}

// Name returns how a path names a member: one that is long by its length.
func Name(member string) string {
	switch {
	case member == "":
		return `""` // keeps the empty name apart from none
	case len(member) > maxName:
		return fmt.Sprintf("(a name of %d bytes)", len(member))
	}
	return member
}
