package redact

import (
	"strings"
	"unicode/utf8"
)

// Limit is the most bytes that [Text] returns. Longer text is cut at a rune boundary and ends in [CutMark].
const Limit = 16 << 10

// The words that stand where something was taken out.
const (
	CardMark     = "[card]"
	IBANMark     = "[iban]"
	RedactedMark = "[redacted]"
	CutMark      = " [cut]"
	// WithheldMark is the whole answer for text built so that each redaction reveals another.
	WithheldMark = "[withheld]"
)

const (
	// maxPasses bounds the work on hostile text; text met in practice is stable after one change.
	maxPasses = 6
	// scanLimit is how much of a text is read: far more than is kept, so that what is cut off was looked at.
	scanLimit = 2 * Limit
	// cutSlack leaves room for marks that a later pass writes, so that cut text is not cut again.
	cutSlack = 256
	// maxCutBack is how far a cut goes back to avoid ending inside a token: half a card number is still telling.
	maxCutBack = 1024
)

// Text returns s without secrets: valid UTF-8 without NUL (as Postgres demands), at most [Limit] bytes. It is cut only
// after its secrets are taken out: half of one is recognised by nobody but by who knows the other half.
// It takes time linear in min(len(s), 2*Limit), and Text(Text(s)) == Text(s).
func Text(s string) string {
	if len(s) > scanLimit {
		s = TrimPartial(s[:scanLimit]) + CutMark
	}
	for range maxPasses {
		next := cut(rewrite(valid(s)))
		if next == s {
			return s
		}
		s = next
	}
	return WithheldMark
}

// TrimPartial returns s, of which the rest is not at hand, without the word or number that its end may have halved.
func TrimPartial(s string) string {
	floor := max(0, len(s)-maxCutBack)
	end := len(s)
	for end > floor && (s[end-1] >= utf8.RuneSelf || !endsWord(s[end-1])) {
		end--
	}
	groups := end // of a number
	for groups > floor && !isLetter(s[groups-1]) && s[groups-1] < utf8.RuneSelf {
		groups--
	}
	if digit := strings.IndexAny(s[groups:end], "0123456789"); digit >= 0 {
		end = groups + digit
	}
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// endsWord reports whether c stands between words, not in a token.
func endsWord(c byte) bool { return endsValue(c) || strings.IndexByte(",;()[]{}|", c) >= 0 }

// valid replaces what Postgres refuses in text: bytes that are not UTF-8, and NUL.
func valid(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	}
	return s
}

// cut shortens text over Limit, going back to the end of a token and of a number.
func cut(s string) string {
	if len(s) <= Limit {
		return s
	}
	return TrimPartial(s[:Limit-cutSlack]) + CutMark
}
