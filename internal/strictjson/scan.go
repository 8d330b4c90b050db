package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// scanner reads a text of UTF-8 once.
type scanner struct {
	text []byte
	pos  int
	// names are the names of the members read so far of every open object, the outermost first.
	names [][]byte
}

// maxLinearNames is how many names of an object are compared one by one; more are put in a map.
const maxLinearNames = 16

func (p *scanner) blanks() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

// syntaxError returns the error of a text that is not JSON from the scanner's position on.
func (p *scanner) syntaxError() *Error {
	if p.pos >= len(p.text) {
		return &Error{Problem: "is not JSON: it ends too early", syntax: true}
	}
	return &Error{Problem: fmt.Sprintf("is not JSON at byte %d", p.pos+1), syntax: true}
}

// value reads one value.
func (p *scanner) value(s *typeFields, depth int) *Error {
	if p.pos >= len(p.text) {
		return p.syntaxError()
	}
	if depth > maxDepth {
		return &Error{Problem: fmt.Sprintf("is nested deeper than %d", maxDepth), syntax: true}
	}
	switch c := p.text[p.pos]; {
	case c == '{':
		return p.object(s, depth)
	case c == '[':
		return p.list(s, depth)
	case c == '"':
		_, err := p.quoted()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if word[0] == p.text[p.pos] {
			return p.word(word)
		}
	}
	return p.syntaxError()
}

func (p *scanner) word(word string) *Error {
	for i := range len(word) {
		if p.pos >= len(p.text) || p.text[p.pos] != word[i] {
			return p.syntaxError()
		}
		p.pos++
	}
	return nil
}

// next reads c if it is next, and reports whether it was.
func (p *scanner) next(c byte) bool {
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *scanner) list(s *typeFields, depth int) *Error {
	p.pos++
	p.blanks()
	if p.next(']') {
		return nil
	}
	for {
		p.blanks()
		if err := p.value(s.element(), depth+1); err != nil {
			return err
		}
		p.blanks()
		if p.next(',') {
			continue
		}
		if p.next(']') {
			return nil
		}
		return p.syntaxError()
	}
}

func (p *scanner) object(s *typeFields, depth int) *Error {
	p.pos++
	p.blanks()
	if p.next('}') {
		return nil
	}
	first := len(p.names)
	var many map[string]bool
	for {
		p.blanks()
		name, err := p.memberName()
		if err != nil {
			return err
		}
		if p.repeated(name, first, &many) {
			return (&Error{Problem: "is given twice"}).within(name)
		}
		field, err := s.member(name)
		if err == nil {
			err = p.memberValue(field, depth)
		}
		if err != nil {
			return err.within(name)
		}
		p.blanks()
		if p.next(',') {
			continue
		}
		if p.next('}') {
			p.names = p.names[:first]
			return nil
		}
		return p.syntaxError()
	}
}

// repeated reports whether the object whose names begin at first has the name already, and adds it.
func (p *scanner) repeated(name []byte, first int, many *map[string]bool) bool {
	had := p.names[first:]
	if *many == nil && len(had) >= maxLinearNames {
		*many = make(map[string]bool, 4*maxLinearNames)
		for _, n := range had {
			(*many)[string(n)] = true
		}
	}
	if *many != nil {
		if (*many)[string(name)] {
			return true
		}
		(*many)[string(name)] = true
		return false
	}
	for _, n := range had {
		if bytes.Equal(n, name) {
			return true
		}
	}
	p.names = append(p.names, name)
	return false
}

func (p *scanner) memberName() ([]byte, *Error) {
	if p.pos >= len(p.text) || p.text[p.pos] != '"' {
		return nil, p.syntaxError()
	}
	from := p.pos
	escaped, err := p.quoted()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return p.text[from+1 : p.pos-1], nil
	}
	var name string
	if json.Unmarshal(p.text[from:p.pos], &name) != nil {
		return nil, p.syntaxError()
	}
	return []byte(name), nil
}

func (p *scanner) memberValue(s *typeFields, depth int) *Error {
	p.blanks()
	if !p.next(':') {
		return p.syntaxError()
	}
	p.blanks()
	return p.value(s, depth+1)
}
