package redact

import "strings"

// tokenSchemes are the authorization schemes whose credentials are a single token.
var tokenSchemes = [...]string{"bearer", "basic", "token", "apikey", "dpop", "negotiate"}

// withScheme extends v, the first token of a value, by the next token if v is only the name of a scheme.
func (sc *scanner) withScheme(v span) span {
	for _, scheme := range tokenSchemes {
		if strings.EqualFold(sc.s[v.from:v.to], scheme) {
			next := token(sc.s, blanks(sc.s, v.to))
			return span{v.from, max(v.to, next.to)}
		}
	}
	return v
}

// header extends v, the value of a header, to the end of its credentials if its scheme is known, else to the end of
// the line. A value in quotes or brackets is complete already.
func (sc *scanner) header(v span) span {
	value := sc.s[v.from:v.to]
	if value == "" || value == RedactedMark || value[0] == '[' || value[0] == '{' || isQuote(sc.s[v.from-1]) ||
		strings.ContainsAny(value, " \t") {
		return v
	}
	if line := strings.IndexAny(sc.s[v.to:], "\r\n"); line >= 0 {
		return span{v.from, v.to + line}
	}
	return span{v.from, len(sc.s)}
}

// proseAfterScheme are words that follow "bearer" and "basic" in prose.
var proseAfterScheme = [...]string{
	"token", "tokens", "auth", "authentication", "authorization", "access", "scheme", "realm", "credentials",
	"header", "of", "is", "was", "and", "or", "not", "error", RedactedMark,
}

// bearer replaces the token after the word s[i:end] if that is Bearer, Basic or Negotiate.
func (sc *scanner) bearer(i, end int) (int, bool) {
	word := sc.s[i:end]
	negotiate := word == "Negotiate" // in small letters it is a verb
	if !negotiate && !equalsAny(word, "bearer", "basic") {
		return 0, false
	}
	from := blanks(sc.s, end)
	if from == end {
		return 0, false
	}
	v := token(sc.s, from)
	if v.from == v.to {
		return 0, false
	}
	token := sc.s[v.from:v.to]
	if negotiate && (len(token) < minEncoded || token == strings.ToLower(token) || token == strings.ToUpper(token)) {
		return 0, false
	}
	for _, prose := range proseAfterScheme {
		if strings.EqualFold(token, prose) {
			return 0, false
		}
	}
	if word == "basic" && strings.Trim(token, "abcdefghijklmnopqrstuvwxyz-") == "" {
		return 0, false // "basic checks" is English; encoded credentials are not all lower case
	}
	return sc.replace(v.from, v.to, RedactedMark), true
}
