package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
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
