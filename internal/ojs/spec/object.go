package spec

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// member is a member of an object, with its value as it was written.
type member struct {
	name  string
	value json.RawMessage
}

// object is a JSON object whose members keep their order and their texts.
type object []member

// parseObject reads a body that must be one strict JSON object without U+0000. A member whose name
// differs from a field of names only in case is refused: a reader that ignores case would take it for
// that one. Names may be nil.
func parseObject(body []byte, names any) (object, *Error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, InvalidPayload("is empty")
	}
	check := func() error { return strictjson.Check(body) }
	if names != nil {
		check = func() error { return strictjson.CheckFor(body, names) }
	}
	if err := check(); err != nil {
		return nil, ofJSON(err)
	}
	if kind := strictjson.Kind(body); kind != "an object" {
		return nil, InvalidPayload("must be an object, is " + kind)
	}
	out := members(body)
	if hasNUL(body) {
		for _, m := range out {
			if bytes.IndexByte([]byte(m.name), 0) >= 0 {
				return nil, InvalidPayload("has a member with U+0000 in its name")
			}
			if hasNUL(m.value) {
				return nil, Invalid(strictjson.Name(m.name), "has the character U+0000")
			}
		}
	}
	return out, nil
}

// parseBody is parseObject for bodies of requests, which have a limit.
func parseBody(body []byte, names any) (reader, *Error) {
	if len(body) > MaxBody {
		return reader{}, TooLarge("", MaxBody)
	}
	o, err := parseObject(body, names)
	return newReader(o), err
}

// hasNUL reports whether a JSON text has an escaped U+0000. Unescaped it is no JSON.
func hasNUL(text []byte) bool {
	escape := []byte(`\u0000`)
	for from := 0; ; {
		i := bytes.Index(text[from:], escape)
		if i < 0 {
			return false
		}
		at := from + i
		slashes := 0
		for slashes < at && text[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 { // else the backslash is itself escaped
			return true
		}
		from = at + len(escape)
	}
}

// members returns the members of an object that was checked; of another text, what it finds.
func members(text []byte) (out object) {
	p := skipBlanks(text, 0)
	if p >= len(text) || text[p] != '{' {
		return nil
	}
	for p++; ; p++ {
		if p = skipBlanks(text, p); p >= len(text) || text[p] != '"' {
			return out
		}
		end := stringEnd(text, p)
		name, ok := unquote(text[p:end])
		if p = skipBlanks(text, end); !ok || p >= len(text) || text[p] != ':' {
			return out
		}
		p = skipBlanks(text, p+1)
		end = valueEnd(text, p)
		out = append(out, member{name, text[p:end:end]})
		if p = skipBlanks(text, end); p >= len(text) || text[p] != ',' {
			return out
		}
	}
}

// elements returns the elements of a list that was checked; of another text, what it finds.
func elements(text []byte) (out []json.RawMessage) {
	p := skipBlanks(text, 0)
	if p >= len(text) || text[p] != '[' {
		return nil
	}
	for p++; ; p++ {
		if p = skipBlanks(text, p); p >= len(text) || text[p] == ']' {
			return out
		}
		end := valueEnd(text, p)
		out = append(out, text[p:end:end])
		if p = skipBlanks(text, end); p >= len(text) || text[p] != ',' {
			return out
		}
	}
}

func skipBlanks(text []byte, p int) int {
	for p < len(text) && (text[p] == ' ' || text[p] == '\t' || text[p] == '\r' || text[p] == '\n') {
		p++
	}
	return p
}

// stringEnd returns where the string that begins at p ends.
func stringEnd(text []byte, p int) int {
	for p++; p < len(text); p++ {
		switch text[p] {
		case '"':
			return p + 1
		case '\\':
			p++
		}
	}
	return len(text)
}

// valueEnd returns where the value that begins at p ends.
func valueEnd(text []byte, p int) int {
	for depth := 0; p < len(text); {
		switch text[p] {
		case '"':
			if p = stringEnd(text, p); depth == 0 {
				return p
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return p + 1 + min(depth, 0) // the bracket of an outer value is not part of this one
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return p
			}
		}
		p++
	}
	return len(text)
}

// unquote returns the text of a JSON string.
func unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// get returns the value of a member, and whether there is one.
func (o object) get(name string) (json.RawMessage, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// set adds a member, or replaces its value where it stands.
func (o *object) set(name string, value json.RawMessage) {
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{name, value})
}

// merged returns the object with the members of another one added, or set where they stand. differ, if
// not nil, is called with both values of a member that both have.
func (o object) merged(over object, differ func(had, given json.RawMessage)) object {
	out := slices.Clone(o)
	places := make(map[string]int, len(o))
	for i, m := range o {
		places[m.name] = i
	}
	for _, m := range over {
		i, had := places[m.name]
		if !had {
			out = append(out, m)
			continue
		}
		if differ != nil {
			differ(out[i].value, m.value)
		}
		out[i].value = m.value
	}
	return out
}

// without returns the members for which drop is false.
func (o object) without(drop func(m member) bool) object {
	out := make(object, 0, len(o))
	for _, m := range o {
		if !drop(m) {
			out = append(out, m)
		}
	}
	return out
}

// encode returns the object as JSON, its values as they are.
func (o object) encode() json.RawMessage {
	size := 2
	for _, m := range o {
		size += len(m.name) + len(m.value) + 4
	}
	return o.appendTo(make([]byte, 0, size))
}

func (o object) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(appendQuoted(dst, m.name), ':'), m.value...)
	}
	return append(dst, '}')
}

// appendQuoted appends a JSON string that escapes only what must be. It is never longer than another
// spelling of the text.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= ' ':
			dst = append(dst, c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(dst, '"')
}

func quoted(s string) json.RawMessage { return appendQuoted(nil, s) }

func number(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

// list returns a list of strings as JSON.
func list(texts []string) json.RawMessage {
	out := []byte{'['}
	for i, s := range texts {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(out, s)
	}
	return append(out, ']')
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
