package strictjson

// quoted steps over a string and reports whether it has escapes.
func (p *scanner) quoted() (escaped bool, err *Error) {
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return escaped, err
			}
		case c < ' ':
			return escaped, p.broken()
		}
	}
	return escaped, p.broken()
}

// escape steps to the last byte of the escape that begins here. One half of a surrogate pair must be followed by
// the other.
func (p *scanner) escape() *Error {
	p.at++
	if p.at >= len(p.text) {
		return p.broken()
	}
	switch p.text[p.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
	default:
		return p.broken()
	}
	half, err := p.hex4()
	switch {
	case err != nil:
		return err
	case half < 0xD800 || half > 0xDFFF:
		return nil
	case half >= 0xDC00 || p.at+2 >= len(p.text) || p.text[p.at+1] != '\\' || p.text[p.at+2] != 'u':
		return halfPair()
	}
	p.at += 2
	if half, err = p.hex4(); err != nil {
		return err
	}
	if half < 0xDC00 || half > 0xDFFF {
		return halfPair()
	}
	return nil
}

func halfPair() *Error { return &Error{Problem: "has half of a surrogate pair"} }

// hex4 steps over the four digits behind the u of an escape.
func (p *scanner) hex4() (rune, *Error) {
	var r rune
	for range 4 {
		p.at++
		if p.at >= len(p.text) {
			return 0, p.broken()
		}
		switch c := p.text[p.at]; {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, p.broken()
		}
	}
	return r, nil
}

// number steps over a number: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
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
	from := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	if p.at == from {
		return p.broken()
	}
	return nil
}
