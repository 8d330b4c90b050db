package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// member is one member of an object, as it was written.
type member struct {
	name  string
	value json.RawMessage
}

// flaw is what is wrong with JSON, and at which field of it.
type flaw struct{ field, problem string }

func (f *flaw) Error() string { return strings.TrimSpace(f.field + " " + f.problem) }

func fieldOf(err error) string {
	var f *flaw
	if errors.As(err, &f) {
		return f.field
	}
	return ""
}

func problemOf(err error) string {
	var f *flaw
	if errors.As(err, &f) {
		return f.problem
	}
	return err.Error()
}

// whole checks that text is one JSON object, and what encoding/json would let
// pass: bytes other than UTF-8, and a repeated member at any depth.
func whole(text []byte) error {
	if !utf8.Valid(text) {
		return &flaw{problem: "is not UTF-8"}
	}
	if !json.Valid(text) {
		return broken(text)
	}
	if k := kind(text); k != "an object" {
		return &flaw{problem: "must be an object, is " + k}
	}
	return repeated(text)
}

// object splits a valid object into its members, in their order.
func object(text []byte) ([]member, error) {
	if k := kind(text); k != "an object" {
		return nil, &flaw{problem: "must be an object, is " + k}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var out []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // a key, for the text is valid
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// level is an object or a list that a walk is in.
type level struct {
	names map[string]bool // nil in a list
	name  string          // of the member that the walk is at; empty before one
}

// repeated walks valid JSON once and finds the first member given twice.
func repeated(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var levels []level
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(levels) > 0 && token != json.Delim('}') {
			if in := &levels[len(levels)-1]; in.names != nil && in.name == "" {
				in.name = quoted(token.(string))
				if in.names[in.name] {
					return &flaw{field: path(levels), problem: "is given twice"}
				}
				in.names[in.name] = true
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
			continue
		case json.Delim('['):
			levels = append(levels, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
		if len(levels) > 0 {
			levels[len(levels)-1].name = "" // a value has ended
		}
	}
}

// quoted keeps the empty name apart from none.
func quoted(name string) string {
	if name == "" {
		return `""`
	}
	return name
}

// path names the member that a walk is at. Lists have no names in it.
func path(levels []level) string {
	var names []string
	for _, l := range levels {
		if l.name != "" {
			names = append(names, l.name)
		}
	}
	return strings.Join(names, ".")
}

// broken says where text stops being JSON.
func broken(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var value json.RawMessage
	err := dec.Decode(&value)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return &flaw{problem: fmt.Sprintf("is not JSON: %s at byte %d", syntax, syntax.Offset)}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &flaw{problem: "is not JSON: it ends too early"}
	case err != nil:
		return &flaw{problem: "is not JSON: " + err.Error()}
	}
	return &flaw{problem: fmt.Sprintf("has something after its end, at byte %d", dec.InputOffset()+1)}
}

// kind names the type of a valid JSON value.
func kind(value []byte) string {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
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

// shown is a number as it was written, and the kind of anything else: a value may
// be long or secret.
func shown(value json.RawMessage) string {
	if k := kind(value); k != "a number" || len(value) > 32 {
		return k
	}
	return string(value)
}

func joined(outer, inner string) string {
	if inner == "" {
		return outer
	}
	return outer + "." + inner
}
