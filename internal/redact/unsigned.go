package redact

import "strings"

const (
	// maxFlagName bounds the search for the dashes before the name of a flag.
	maxFlagName = 64
	maxCVV      = 4 // digits of a card's code
	minCVV      = 3
)

// passwordWords are the names of a password in commands and sentences, where no sign follows them.
var passwordWords = [...]string{"password", "passwd", "passphrase", "passcode", "passwort"}

// unsigned replaces the value of the secret name that ends with the word s[i:end], if no sign stands between: in
// commands, sentences and members of a document.
func (sc *scanner) unsigned(i, end int) (int, bool) {
	if end == len(sc.s) {
		return 0, false
	}
	switch c := sc.s[end]; {
	case c == ' ' || c == '\t':
		return spoken(sc, i, end)
	case isQuote(c) || c == '\\':
		return member(sc, end)
	}
	return 0, false
}

// spoken replaces the value behind the blank that follows the word s[i:end].
func spoken(sc *scanner, i, end int) (int, bool) {
	word, at := sc.s[i:end], blanks(sc.s, end)
	switch { // most words are none of these
	case strings.IndexByte("pPcCbBsStTkKaA", word[0]) < 0:
		return 0, false
	case equalsAny(word, "cvv", "cvc", "cvv2", "cvc2"):
		return cardCode(sc, at)
	case strings.EqualFold(word, "by"):
		return identified(sc, i, end, at)
	case equalsAny(word, passwordWords[:]...):
		if next, ok := statedPassword(sc, word, at); ok {
			return next, true
		}
	case !equalsAny(word, "secret", "token", "key", "apikey", "pwd", "credential", "credentials"):
		return 0, false
	}
	arrow := strings.HasPrefix(sc.s[at:], "-> ")
	if arrow {
		at = blanks(sc.s, at+len("-> "))
	}
	if v := token(sc.s, at); (arrow || isFlag(sc.s, end)) && hasDigit(sc.s[v.from:v.to]) && v.to-v.from >= minCode && sc.s[v.from] != '-' && nameBefore(sc.s, end).secret() {
		return sc.hide(v), true
	}
	return 0, false
}

// cardCode replaces a card's code at i.
func cardCode(sc *scanner, i int) (int, bool) {
	end := digitsEnd(sc.s, i)
	if end-i < minCVV || end-i > maxCVV || end < len(sc.s) && isAlnum(sc.s[end]) {
		return 0, false
	}
	return sc.replace(i, end, RedactedMark), true
}

// identified replaces the password at i behind IDENTIFIED BY, whose last word is s[by:end]. In small letters it is also
// prose: there a password is in quotes and has a digit.
func identified(sc *scanner, by, end, i int) (int, bool) {
	before := by - len("identified ")
	if before < 0 || i == len(sc.s) || !strings.EqualFold(sc.s[before:by], "identified ") {
		return 0, false
	}
	v := quoted(sc, i)
	sure := sc.s[by:end] == "BY" || sc.s[i] == '\'' && hasDigit(sc.s[v.from:v.to])
	if v.from == v.to || !sure {
		return 0, false
	}
	return sc.hide(v), true
}

// statedPassword replaces the password at i behind the word for it: in quotes as in SQL, or behind "is".
func statedPassword(sc *scanner, word string, i int) (int, bool) {
	switch {
	case strings.HasPrefix(sc.s[i:], "'"):
		if v := quoted(sc, i); v.to > v.from && (word == "PASSWORD" || hasDigit(sc.s[v.from:v.to])) {
			return sc.hide(v), true
		}
	case strings.HasPrefix(sc.s[i:], "is "):
		v := token(sc.s, blanks(sc.s, i+len("is ")))
		value := sc.s[v.from:v.to]
		if len(value) >= minCode && hasDigit(value) && strings.Trim(value, "0123456789.,") != "" {
			return sc.hide(v), true
		}
	}
	return 0, false
}

// quoted returns the extent of the value at i: a token, without the quote before it.
func quoted(sc *scanner, i int) span {
	if i < len(sc.s) && isQuote(sc.s[i]) {
		i++
	}
	return token(sc.s, i)
}

// isFlag reports whether the name that ends at end begins with two dashes.
func isFlag(s string, end int) bool {
	i := end
	for i > max(0, end-maxFlagName) && isNameByte(s[i-1]) {
		i--
	}
	return strings.HasPrefix(s[i:end], "--")
}

// userFlags are the flags of a command whose value is user:password.
var userFlags = [...]string{"-u ", "--user ", "--proxy-user "}

// dash replaces what begins with a dash at i: a private key block, or a user and password behind a flag. It returns the
// offset to continue at.
func (sc *scanner) dash(i int) int {
	if next := sc.pem(i); next > i+1 {
		return next
	}
	if i > 0 && isNameByte(sc.s[i-1]) {
		return i + 1
	}
	for _, flag := range userFlags {
		if !strings.HasPrefix(sc.s[i:], flag) {
			continue
		}
		v := quoted(sc, blanks(sc.s, i+len(flag)))
		user, password, found := strings.Cut(sc.s[v.from:v.to], ":")
		// The value is numbers or the same name twice where it is the user and group of a process.
		if found && user != password && hasDigit(password) && strings.Trim(password, "0123456789") != "" {
			return sc.replace(v.from, v.to, RedactedMark)
		}
	}
	return i + 1
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// equalsAny reports whether word is one of the words, in any case.
func equalsAny(word string, words ...string) bool {
	for _, w := range words {
		if len(w) == len(word) && strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}
