package redact

import (
	"strings"
	"unicode/utf8"
)

// phrases are secret names of several words or in other scripts. A code has digits only.
var phrases = [...]struct {
	text string
	code bool
}{
	{"security code", true}, {"mot de passe", false}, {"contraseña", false}, {"пароль", false}, {"lösenord", false},
	{"hasło", false}, {"パスワード", false}, {"密码", false}, {"비밀번호", false},
}

const (
	maxTAN  = 8  // digits of a transaction number
	minCode = 4  // characters of a value under a code name
	minAuth = 16 // characters of an authorization code in a query
)

// underOtherName reports whether the value at i is a secret by its form as well as by its name n, which ends at end.
func underOtherName(sc *scanner, n name, end, i int) bool {
	switch {
	case n.whole && n.text == "tan":
		digits := digitsEnd(sc.s, i) - i
		return digits >= minCode && digits <= maxTAN && digits == len(sc.beginning(i))
	case n.text == "code" && end > len("?code") && strings.IndexByte("?&", sc.s[end-len("?code")]) >= 0:
		value := sc.beginning(i)
		return len(value) >= minAuth && isMixed(value)
	}
	return phraseBefore(sc, end, i)
}

// phraseBefore reports whether a phrase ends at end, and the value at i is one under it.
func phraseBefore(sc *scanner, end, i int) bool {
	for _, p := range phrases {
		from := end - len(p.text)
		if from < 0 || sc.s[end-1] != p.text[len(p.text)-1] || !strings.EqualFold(sc.s[from:end], p.text) {
			continue
		}
		digits := digitsEnd(sc.s, i) - i
		return !p.code || digits >= minCVV && digits <= maxCVV
	}
	return false
}

// foreign reads the characters at i that are not ASCII, which may be the end of a secret name. It returns the offset to
// continue at.
func (sc *scanner) foreign(i int) int {
	for i < len(sc.s) && sc.s[i] >= utf8.RuneSelf {
		i++
	}
	if next, ok := sc.assignment(i); ok {
		return next
	}
	return i
}
