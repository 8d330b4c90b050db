package redact

import (
	"strings"
	"unicode/utf8"
)

// scanner reads text once, word by word, and copies it to out from the first change on.
type scanner struct {
	s    string
	out  []byte
	kept int // from[:kept] is in out, or replaced
	done int // s[:done] is replaced up to its end

	noJWTBefore int // no JSON Web Token begins before it

	// from is the text to copy: s, or the original of a decoded s; at are the offsets of s in the original.
	from string
	at   []int

	inner bool // s was decoded from another text
	other bool // another secret than the number of a card was found
	// issuedOnly accepts as cards only numbers that a card scheme issues.
	issuedOnly bool
	first      [8]group // buffer for a run of groups, so that few runs allocate
}

// views are the ways in which a text is read after it was read as it is.
var views = [...]func(string) (readableText, bool){readable, untagged}

// rewrite returns s with every secret replaced by its mark, in one pass. The result may have a secret that only
// the replacement made visible.
func rewrite(s string) string {
	sc := scanner{s: s}
	sc.run()
	for _, view := range views {
		if sc.out != nil {
			return string(append(sc.out, s[sc.kept:]...))
		}
		if v, differs := view(s); differs {
			sc = scanner{s: string(v.text), from: s, at: v.at, issuedOnly: true}
			sc.run()
		}
	}
	if sc.out != nil {
		return string(append(sc.out, s[sc.kept:]...))
	}
	return s
}

// ContainsSecret reports whether [Text] would find a secret in s. Digits that pass the Luhn check count only if a card
// scheme issues such numbers, so that ids made of digits are not refused.
func ContainsSecret(s string) bool {
	sc := scanner{s: s, issuedOnly: true}
	sc.run()
	for _, view := range views {
		if sc.out != nil {
			return true
		}
		if v, differs := view(s); differs {
			sc = scanner{s: string(v.text), issuedOnly: true}
			sc.run()
		}
	}
	return sc.out != nil
}

// HoldsMoreThanCards reports whether s holds a secret other than numbers of cards that can be read in it as it stands, for
// values that a caller knows as no numbers of cards.
func HoldsMoreThanCards(s string) bool {
	sc := scanner{s: s, issuedOnly: true}
	sc.run()
	for _, view := range views {
		if sc.other {
			return true
		}
		if v, differs := view(s); differs {
			sc = scanner{s: string(v.text), issuedOnly: true}
			sc.run()
		}
	}
	return sc.other
}

func (sc *scanner) run() {
	for i := 0; i < len(sc.s); {
		switch c := sc.s[i]; {
		case isAlnum(c):
			i = sc.word(i)
		case c >= utf8.RuneSelf:
			i = sc.foreign(i)
		case c == '-':
			i = sc.dash(i)
		case c == ':':
			i = sc.userinfo(i)
		case c == '@':
			i = sc.bareUserinfo(i)
		default:
			i++
		}
		i = max(i, sc.done)
	}
}

// word handles the run of letters and digits that begins at i. It returns the offset to continue at.
func (sc *scanner) word(i int) int {
	end, digits, hex := i, false, true
	for end < len(sc.s) && isAlnum(sc.s[end]) {
		digits = digits || isDigit(sc.s[end])
		hex = hex && isHex(sc.s[end])
		end++
	}
	if next, ok := sc.knownKey(i); ok {
		return next
	}
	if hex && end-i == 8 && isUUID(sc.s[i:]) {
		return i + uuidLen
	}
	if next, ok := sc.iban(i, end); ok {
		return next
	}
	if end-i > len("iban") && strings.EqualFold(sc.s[i:i+len("iban")], "iban") {
		if next, ok := sc.iban(i+len("iban"), end); ok {
			return next
		}
	}
	if next, ok := sc.encoded(i); ok {
		return next
	}
	if next, ok := sc.bearer(i, end); ok {
		return next
	}
	if digits && !isDigit(sc.s[end-1]) {
		if sc.numbers(i, end); sc.done > end { // a name may contain a number too
			return sc.done
		}
		digits = false
	}
	if next, ok := sc.assignment(end); ok {
		return next
	}
	if next, ok := sc.unsigned(i, end); ok {
		return next
	}
	if digits {
		return sc.numbers(i, end)
	}
	return end
}

// replace writes mark in place of s[from:to] and returns to.
func (sc *scanner) replace(from, to int, mark string) int {
	sc.done = to
	sc.other = sc.other || mark != CardMark
	source, first, last := sc.s, from, to
	if sc.at != nil {
		source, first, last = sc.from, sc.at[from], sc.at[to]
	}
	if sc.out == nil {
		sc.out = make([]byte, 0, len(source)+len(mark))
	}
	sc.out = append(sc.out, source[sc.kept:first]...)
	sc.out = append(sc.out, mark...)
	sc.kept = last
	return to
}

const uuidLen = 36

func isUUID(s string) bool {
	if len(s) < uuidLen || (len(s) > uuidLen && isAlnum(s[uuidLen])) {
		return false
	}
	for i := range uuidLen {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if !isHex(s[i]) {
				return false
			}
		}
	}
	return true
}

// separator returns the length of the space or dash at the start of s, 0 if there is none. Typographic ones
// count: numbers are pasted from web pages.
func separator(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] {
	case ' ', '-', '\t':
		return 1
	case 0xC2:
		if strings.HasPrefix(s, "\u00a0") {
			return 2
		}
	case 0xE2:
		for _, sep := range [...]string{"\u2007", "\u2009", "\u2010", "\u2011", "\u2012", "\u2013", "\u202f"} {
			if strings.HasPrefix(s, sep) {
				return 3
			}
		}
	}
	return 0
}

func isDigit(c byte) bool { return c-'0' < 10 }

func isLetter(c byte) bool { return (c|0x20)-'a' < 26 }

func isAlnum(c byte) bool { return isDigit(c) || isLetter(c) }

func isHex(c byte) bool { return isDigit(c) || (c|0x20)-'a' < 6 }
