package redact

import "strings"

const (
	minFloatDigits = 9  // behind the point: a rounded amount has fewer
	maxExponent    = 18 // of a card of 19 digits
)

// floatDigits returns the digits of the whole number at the start of s that is printed as a float,
// "4.111111111111111e15", and the end of it; 0 if there is none.
func floatDigits(s string) (digits []byte, end int) {
	if len(s) < 2+minFloatDigits || !isDigit(s[0]) || s[1] != '.' {
		return nil, 0
	}
	point := digitsEnd(s, 2)
	fraction := point - 2
	if fraction < minFloatDigits || fraction > maxExponent || point == len(s) || s[point]|0x20 != 'e' {
		return nil, 0
	}
	at := point + 1
	if at < len(s) && s[at] == '+' {
		at++
	}
	end = digitsEnd(s, at)
	exponent := 0
	for _, c := range []byte(s[at:min(end, at+2)]) {
		exponent = 10*exponent + int(c-'0')
	}
	if end-at > 2 || exponent < fraction || exponent > maxExponent || end < len(s) && isAlnum(s[end]) {
		return nil, 0
	}
	return []byte(s[:1] + s[2:point] + strings.Repeat("0", exponent-fraction)), end
}

// float replaces the card at i that is printed as a float.
func float(sc *scanner, i int) (int, bool) {
	if i > 0 && sc.s[i-1] == '.' {
		return 0, false
	}
	digits, length := floatDigits(sc.s[i:min(len(sc.s), i+2*maxCard)])
	if length == 0 || !isCardNumber(digits) {
		return 0, false
	}
	return sc.replace(i, i+length, CardMark), true
}

// behindDate replaces a card that follows the date at i without a blank.
func behindDate(sc *scanner, i int) (int, bool) {
	from := i + dateLen
	if from >= len(sc.s) || !isDigit(sc.s[from]) || !isDate(sc.s[i:from]) {
		return 0, false
	}
	g := group{from: from, to: digitsEnd(sc.s, from)}
	if g.len() > maxCard || !isCardNumber([]byte(sc.s[g.from:g.to])) {
		return 0, false
	}
	return sc.replace(g.from, g.to, CardMark), true
}
