package strictjson

// quoted reads a string and reports whether it has escapes.
func (p *scanner) quoted() (escaped bool, err *Error) {
	for p.pos++; p.pos < len(p.text); p.pos++ {
		switch c := p.text[p.pos]; {
		case c == '"':
			p.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return escaped, err
			}
		case c < ' ':
			return escaped, p.syntaxError()
		}
	}
	return escaped, p.syntaxError()
}

// escape reads an escape up to its last byte. Half of a surrogate pair must be followed by the
// other half.
func (p *scanner) escape() *Error {
	p.pos++
	if p.pos >= len(p.text) {
		return p.syntaxError()
	}
	switch p.text[p.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
	default:
		return p.syntaxError()
	}
	half, err := p.hex4()
	switch {
	case err != nil:
		return err
	case half < 0xD800 || half > 0xDFFF:
		return nil
	case half >= 0xDC00 || p.pos+2 >= len(p.text) || p.text[p.pos+1] != '\\' || p.text[p.pos+2] != 'u':
		return errLoneSurrogate()
	}
	p.pos += 2
	if half, err = p.hex4(); err != nil {
		return err
	}
	if half < 0xDC00 || half > 0xDFFF {
		return errLoneSurrogate()
	}
	return nil
}

func errLoneSurrogate() *Error { return &Error{Problem: "has half of a surrogate pair"} }

// hex4 reads the four digits after the u of an escape.
func (p *scanner) hex4() (rune, *Error) {
	var r rune
	for range 4 {
		p.pos++
		if p.pos >= len(p.text) {
			return 0, p.syntaxError()
		}
		switch c := p.text[p.pos]; {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, p.syntaxError()
		}
	}
	return r, nil
}

// number reads a number: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func (p *scanner) number() *Error {
	p.next('-')
	if !p.next('0') {
		if err := p.digits(); err != nil {
			return err
		}
	}
	if p.next('.') {
		if err := p.digits(); err != nil {
			return err
		}
	}
	if p.next('e') || p.next('E') {
		if !p.next('+') {
			p.next('-')
		}
		return p.digits()
	}
	return nil
}

func (p *scanner) digits() *Error {
	from := p.pos
	for p.pos < len(p.text) && '0' <= p.text[p.pos] && p.text[p.pos] <= '9' {
		p.pos++
	}
	if p.pos == from {
		return p.syntaxError()
	}
	return nil
}
