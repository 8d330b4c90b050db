package redact

import "strings"

// tokenSchemes are the authorization schemes whose credentials are a single token.
var tokenSchemes = [...]string{"bearer", "basic", "token", "apikey", "dpop", "negotiate"}

// header widens v, the first token of a header's value, to all of its credentials: the token that follows a known
// scheme, else the rest of the line. A value in quotes or brackets is whole already.
func (sc *scanner) header(v span) span {
	if v.from == v.to || sc.s[v.from:v.to] == RedactedMark || sc.s[v.from] == '[' || sc.s[v.from] == '{' ||
		isQuote(sc.s[v.from-1]) {
		return v
	}
	for _, scheme := range tokenSchemes {
		if strings.EqualFold(sc.s[v.from:v.to], scheme) {
			next := sc.token(sc.blanks(v.to))
			return span{v.from, max(v.to, next.to)}
		}
	}
	if line := strings.IndexAny(sc.s[v.to:], "\r\n"); line >= 0 {
		return span{v.from, v.to + line}
	}
	return span{v.from, len(sc.s)}
}

// proseAfterScheme are the words that follow "bearer" and "basic" in a sentence about them.
var proseAfterScheme = [...]string{
	"token", "tokens", "auth", "authentication", "authorization", "access", "scheme", "realm", "credentials",
	"header", "of", "is", "was", "and", "or", "not", "error", RedactedMark,
}

// bearer replaces the token that follows the word s[i:end] when that is Bearer or Basic.
func (sc *scanner) bearer(i, end int) (int, bool) {
	word := sc.s[i:end]
	if !strings.EqualFold(word, "bearer") && !strings.EqualFold(word, "basic") {
		return 0, false
	}
	from := sc.blanks(end)
	if from == end {
		return 0, false
	}
	v := sc.token(from)
	if v.from == v.to {
		return 0, false
	}
	token := sc.s[v.from:v.to]
	for _, prose := range proseAfterScheme {
		if strings.EqualFold(token, prose) {
			return 0, false
		}
	}
	if word == "basic" && strings.Trim(token, "abcdefghijklmnopqrstuvwxyz-") == "" {
		return 0, false // "basic checks" is English; encoded credentials hold more than small letters
	}
	return sc.replace(v.from, v.to, RedactedMark), true
}
