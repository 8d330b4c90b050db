package references

import (
	"slices"
	"strings"
)

// Scheme is a standard by which a bank makes references that check themselves.
type Scheme string

// The schemes.
const (
	KID Scheme = "kid" // of Norway: 4 to 25 digits, the last by modulus 10 or 11; of modulus 11 it can be a minus sign
	OCR Scheme = "ocr" // of Sweden, of Bankgirot: 2 to 25 digits, the last by modulus 10
	FIK Scheme = "fik" // of Denmark: the payment id of types 04, 15, 71 and 75, of 15 or 16 digits, the last by modulus 10
	RF  Scheme = "rf"  // ISO 11649: RF, two check digits and 1 to 21 letters and digits, by modulus 97
)

// schemes has what is known of each scheme.
var schemes = map[Scheme]struct {
	min, max int // length of a reference
	valid    func(s string, modulus int) bool
}{
	KID: {4, 25, validKID},
	OCR: {2, 25, func(s string, _ int) bool { return passesLuhn(s) }},
	FIK: {15, 16, func(s string, _ int) bool { return passesLuhn(s) }},
	RF:  {5, 25, func(s string, _ int) bool { return validRF(s) }},
}

// Schemes returns all schemes in alphabetical order.
func Schemes() []Scheme { return []Scheme{FIK, KID, OCR, RF} }

func validKID(s string, modulus int) bool {
	return modulus != 11 && passesLuhn(s) || modulus != 10 && passesModulus11(s)
}

// passesLuhn reports whether s is digits of which the last one checks the others by modulus 10.
func passesLuhn(s string) bool {
	sum := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
		d := int(s[i] - '0')
		if (len(s)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// passesModulus11 reports whether the last character of s checks the digits before it by modulus 11 with the weights 2 to
// 7 from the right. The check digit 10 is written as a minus sign.
func passesModulus11(s string) bool {
	sum, last := 0, len(s)-1
	for i := range last {
		if !isDigit(s[i]) {
			return false
		}
		sum += int(s[i]-'0') * (2 + (last-1-i)%6)
	}
	switch check := (11 - sum%11) % 11; {
	case check == 10:
		return s[last] == '-'
	default:
		return s[last] == byte('0'+check)
	}
}

// validRF reports whether s is a creditor reference of ISO 11649: with its first four characters behind the others,
// letters read as 10 to 35, it is 1 modulo 97.
func validRF(s string) bool {
	if !strings.HasPrefix(s, "RF") || !isDigit(s[2]) || !isDigit(s[3]) {
		return false
	}
	rest := 0
	for i := range len(s) {
		switch c := s[(i+4)%len(s)]; {
		case isDigit(c):
			rest = (rest*10 + int(c-'0')) % 97
		case 'A' <= c && c <= 'Z':
			rest = (rest*100 + int(c-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// blanks are the characters that people put between the groups of a reference.
const blanks = " \t\u00a0\u2007\u2009\u202f"

// canonical returns a value as the canonical spelling of a scheme: without blanks, and without the name of the scheme
// before it; of RF in capitals, and of FIK the payment id of a code line.
func (s Scheme) canonical(value string) string {
	if strings.ContainsAny(value, blanks) {
		value = strings.Map(func(r rune) rune {
			if strings.ContainsRune(blanks, r) {
				return -1
			}
			return r
		}, value)
	}
	if s == RF {
		return strings.ToUpper(value)
	}
	if name := len(s); len(value) > name && strings.EqualFold(value[:name], string(s)) {
		value = strings.TrimLeft(value[name:], ":.#-")
	}
	if s == FIK {
		return paymentID(value)
	}
	return value
}

// cardTypes are the types of FIK whose code line has a payment id.
var cardTypes = []string{"04", "15", "71", "75"}

// paymentID returns the payment id of a code line, +71<000000000000018+12345678<. Any other value it returns as it is.
func paymentID(line string) string {
	before, after, found := strings.Cut(strings.TrimPrefix(line, "+"), "<")
	if !found || !slices.Contains(cardTypes, before) {
		return line
	}
	id, _, _ := strings.Cut(after, "+")
	return id
}

// MaySpell reports whether a value may be a reference of some scheme that is not in its canonical spelling, as far as
// its characters show. Of the ids that programs make few are.
func MaySpell(value string) bool {
	if !strings.ContainsAny(value, blanks) && !beginsAsSpelled(value) { // without an allocation
		return false
	}
	for _, s := range Schemes() {
		if c := s.canonical(value); c != value && len(c) >= schemes[s].min && len(c) <= schemes[s].max && looksCanonical(s, c) {
			return true
		}
	}
	return false
}

// beginsAsSpelled reports whether a value begins as a reference behind the name of its scheme, or as a code line.
func beginsAsSpelled(value string) bool {
	if strings.HasPrefix(value, "+") {
		return true
	}
	for s := range schemes {
		if len(value) > len(s) && strings.EqualFold(value[:len(s)], string(s)) {
			return true
		}
	}
	return false
}

// looksCanonical reports whether a value has the characters of a scheme.
func looksCanonical(s Scheme, value string) bool {
	if s == RF {
		return strings.HasPrefix(value, "RF") && isDigit(value[2]) && isDigit(value[3])
	}
	return strings.Trim(value[:len(value)-1], "0123456789") == "" && (isDigit(value[len(value)-1]) || value[len(value)-1] == '-')
}
