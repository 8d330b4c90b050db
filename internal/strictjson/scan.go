package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// scanner walks a text of UTF-8 once.
type scanner struct {
	text []byte
	at   int
	// names are those of the members read so far of every object that is open, the outermost first.
	names [][]byte
}

// fewNames is how many names of one object are compared with each other; more are kept in a map.
const fewNames = 16

func (p *scanner) blanks() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// broken is the error of a text that stops being JSON at the scanner's place.
func (p *scanner) broken() *Error {
	if p.at >= len(p.text) {
		return &Error{Problem: "is not JSON: it ends too early", ofText: true}
	}
	return &Error{Problem: fmt.Sprintf("is not JSON at byte %d", p.at+1), ofText: true}
}

// value steps over one value.
func (p *scanner) value(s *shape, depth int) *Error {
	if p.at >= len(p.text) {
		return p.broken()
	}
	if depth > maxDepth {
		return &Error{Problem: fmt.Sprintf("is nested deeper than %d", maxDepth), ofText: true}
	}
	switch c := p.text[p.at]; {
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
		if word[0] == p.text[p.at] {
			return p.word(word)
		}
	}
	return p.broken()
}

func (p *scanner) word(word string) *Error {
	for i := range len(word) {
		if p.at >= len(p.text) || p.text[p.at] != word[i] {
			return p.broken()
		}
		p.at++
	}
	return nil
}

// next steps over c, and reports whether it was there.
func (p *scanner) next(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *scanner) list(s *shape, depth int) *Error {
	p.at++
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
		return p.broken()
	}
}

func (p *scanner) object(s *shape, depth int) *Error {
	p.at++
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
		return p.broken()
	}
}

// repeated reports whether the object whose names begin at first has had this one, and notes it.
func (p *scanner) repeated(name []byte, first int, many *map[string]bool) bool {
	had := p.names[first:]
	if *many == nil && len(had) >= fewNames {
		*many = make(map[string]bool, 4*fewNames)
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
	if p.at >= len(p.text) || p.text[p.at] != '"' {
		return nil, p.broken()
	}
	from := p.at
	escaped, err := p.quoted()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return p.text[from+1 : p.at-1], nil
	}
	var name string
	if json.Unmarshal(p.text[from:p.at], &name) != nil {
		return nil, p.broken()
	}
	return []byte(name), nil
}

func (p *scanner) memberValue(s *shape, depth int) *Error {
	p.blanks()
	if !p.next(':') {
		return p.broken()
	}
	p.blanks()
	return p.value(s, depth+1)
}
