package redact

import "strings"

// secretSuffixes are the suffixes of names whose value is a secret, without separators and case.
var secretSuffixes = [...]string{
	"password", "passwd", "pwd", "passphrase", "passcode", "secret", "token", "credential", "credentials",
	"apikey", "accesskey", "secretkey", "privatekey", "signingkey", "encryptionkey", "authorization",
	"sessionid", "sessid", "accountkey", "secretkeybase", "pinblock",
	"passwort", "kennwort", "motdepasse", "contrasena", "senha", "wachtwoord", "passord", "adgangskode",
}

// secretNames are names whose value is a secret.
var secretNames = [...]string{"cvv", "cvc", "cvv2", "cvc2", "pan", "cookie", "setcookie", "connectsid"}

// codeNames are names whose value is a secret if it looks like one: "pass" is also a result.
var codeNames = [...]string{"pass", "pin", "otp", "pw"}

const (
	minSignature = 16 // characters of a value under the name of a signature
	// maxCodeScan bounds how much of such a value is read: a value that is kept is scanned again afterwards.
	maxCodeScan = 256
)

// maxNameScan is the maximum length of a name without separators; the longest suffix is shorter.
const maxNameScan = 48

// name is a field name without case and separators; whole is false if it was longer than maxNameScan.
type name struct {
	text  string
	whole bool
}

// secret reports whether the value of this name is a secret.
func (n name) secret() bool {
	for _, suffix := range secretSuffixes {
		if strings.HasSuffix(n.text, suffix) {
			return true
		}
	}
	if n.whole {
		for _, exact := range secretNames {
			if n.text == exact {
				return true
			}
		}
	}
	return false
}

// nameBefore returns the name that ends at end.
func nameBefore(s string, end int) name {
	var buf [maxNameScan]byte
	at := len(buf)
	i := end
	for i > 0 && at > 0 && isNameByte(s[i-1]) {
		i--
		if isAlnum(s[i]) {
			at--
			buf[at] = s[i]
			if isLetter(s[i]) {
				buf[at] |= 0x20
			}
		}
	}
	return name{text: string(buf[at:]), whole: i == 0 || !isNameByte(s[i-1])}
}

// code reports whether the value of this name is a secret if it looks like one.
func (n name) code() bool {
	for _, exact := range codeNames {
		if n.whole && n.text == exact {
			return true
		}
	}
	return false
}

// signature reports whether this is the name of a signature: its holder can use what it signs.
func (n name) signature() bool {
	return strings.HasSuffix(n.text, "signature") || n.whole && n.text == "sig"
}

// plausible reports whether a value may be a secret under a name that has other meanings too.
func (n name) plausible(value string, sign byte) bool {
	digit := strings.ContainsAny(value, "0123456789")
	if n.signature() {
		return len(value) >= minSignature && digit
	}
	switch value {
	case "true", "false", "null", "none", RedactedMark:
		return false
	}
	return len(value) >= minCode && (sign == '=' || digit)
}

func isNameByte(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

// assignment replaces the value given to a secret name that ends at end.
func (sc *scanner) assignment(end int) (int, bool) {
	at, sign := sc.readSign(end)
	if sign == 0 {
		return 0, false
	}
	n := nameBefore(sc.s, end)
	switch {
	case n.secret():
	case n.code(), n.signature():
		if !n.plausible(sc.beginning(at), sign) {
			return 0, false
		}
	case sign == '=' && n.whole && n.text == "key":
	case underOtherName(sc, n, end, at):
	default:
		return 0, false
	}
	if strings.HasPrefix(sc.s[at:], pemBegin) {
		return at, true // a block has more than its first word
	}
	if inner := at + len(cdataBegin); strings.HasPrefix(sc.s[at:], cdataBegin) {
		return sc.hide(cdata(sc.s, inner)), true
	}
	v := sc.withScheme(sc.value(at))
	if strings.HasSuffix(n.text, "authorization") || strings.HasSuffix(n.text, "cookie") {
		v = sc.header(v)
	}
	return sc.hide(v), true
}

// hide replaces a value, unless it is empty or was replaced before. It returns its end.
func (sc *scanner) hide(v span) int {
	if value := sc.s[v.from:v.to]; value == "" || value == "null" || value == RedactedMark {
		return v.to
	}
	return sc.replace(v.from, v.to, RedactedMark)
}

// beginning returns the first bytes of the value that begins at i.
func (sc *scanner) beginning(i int) string {
	near := scanner{s: sc.s[:min(len(sc.s), i+maxCodeScan)]}
	v := near.value(i)
	return near.s[v.from:v.to]
}

// maxPad is the maximum number of blanks on each side of the sign.
const maxPad = 8

// readSign reads the text between a name that ends at i and its value: a closing quote, blanks, "=" or ":", blanks.
// It returns where the value begins, and the sign; 0 if there is none.
func (sc *scanner) readSign(i int) (int, byte) {
	s := sc.s
	for i < len(s) && s[i] == '\\' {
		i++
	}
	if i < len(s) && isQuote(s[i]) {
		i++
	}
	if inside := startTagEnd(sc.s, i); inside > 0 {
		return inside, '='
	}
	if behind := indexEnd(sc.s, i); behind > 0 {
		i = behind
	}
	i = blanks(sc.s, i)
	if i == len(s) || (s[i] != '=' && s[i] != ':') {
		return 0, 0
	}
	sign := s[i]
	i++
	if sign == ':' && i < len(s) && s[i] == ':' {
		return 0, 0 // a scope, as in oauth::token::Kind
	}
	for i < len(s) && (s[i] == '=' || s[i] == '>') {
		sign = '='
		i++
	}
	return blanks(sc.s, i), sign
}

func blanks(s string, i int) int {
	for range maxPad {
		if i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
	}
	return i
}
