package redact

import "strings"

// span is the text s[from:to].
type span struct{ from, to int }

// value returns the extent of the value that begins at i: the text inside its quotes or brackets, else the token. A
// value without a closing quote or bracket runs to the end of the text.
func (sc *scanner) value(i int) span {
	open := i
	for open < len(sc.s) && sc.s[open] == '\\' {
		open++
	}
	if open < len(sc.s) && isQuote(sc.s[open]) {
		return span{open + 1, quoteEnd(sc.s, open+1, sc.s[open], open-i)}
	}
	if i < len(sc.s) && (sc.s[i] == '{' || sc.s[i] == '[') && !strings.HasPrefix(sc.s[i:], RedactedMark) {
		return span{i, bracketEnd(sc.s, i)}
	}
	return token(sc.s, i)
}

// quoteEnd returns the end of the text in quotes that begins at i. A quote inside it has more backslashes than the
// opening one had: JSON is often found inside JSON.
func quoteEnd(s string, i int, quote byte, slashes int) int {
	before := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '\\':
			before++
			continue
		case quote:
			closes := before <= slashes
			if slashes == 0 {
				closes = before%2 == 0
			}
			if closes && quote == '\'' && strings.HasPrefix(s[i+1:], "'") {
				i++ // two single quotes are one in SQL
			} else if closes {
				return i - min(before, slashes)
			}
		}
		before = 0
	}
	return i
}

// bracketEnd returns the end of the bracketed value that begins at i.
func bracketEnd(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return i
}

// token returns the extent of the unquoted value that begins at i, without the punctuation of the sentence around it.
// A mark from an earlier pass is a value of its own, whatever follows it.
func token(s string, i int) span {
	if end := i + len(RedactedMark); strings.HasPrefix(s[i:], RedactedMark) && (end == len(s) || !isAlnum(s[end])) {
		return span{i, end}
	}
	end := i
	for end < len(s) && !endsValue(s[end]) {
		end++
	}
	return span{i, i + len(strings.TrimRight(s[i:end], ",;)]}.:!?"))}
}

func endsValue(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', '&', '"', '\'', '`', '<', '>':
		return true
	}
	return false
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }
