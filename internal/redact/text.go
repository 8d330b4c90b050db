package redact

import (
	"strings"
	"unicode/utf8"
)

// Limit is the maximum length of the result of [Text] in bytes. Longer text is cut at a rune boundary and ends in [CutMark].
const Limit = 16 << 10

// Marks that replace removed text.
const (
	CardMark     = "[card]"
	IBANMark     = "[iban]"
	RedactedMark = "[redacted]"
	CutMark      = " [cut]"
	// WithheldMark is the whole result for text made so that each redaction reveals another secret.
	WithheldMark = "[withheld]"
)

const (
	// maxPasses bounds the work on hostile text; ordinary text is stable after one change.
	maxPasses = 6
	// scanLimit is how much of a text is read: far more than is kept, so that a secret across the cut is found.
	scanLimit = 2 * Limit
	// cutSlack leaves room for marks of a later pass, so that cut text is not cut again.
	cutSlack = 256
	// maxCutBack is how far a cut goes back to avoid ending inside a token: half a card number is still sensitive.
	maxCutBack = 1024
)

// Text returns s without secrets: valid UTF-8 without NUL (as Postgres requires), at most [Limit] bytes. It is cut only
// after its secrets are replaced: half a secret would not be recognised.
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

// TrimPartial returns s, the beginning of a longer text, without the last word or number, which may be incomplete.
func TrimPartial(s string) string {
	floor := max(0, len(s)-maxCutBack)
	end := len(s)
	for end > floor && (s[end-1] >= utf8.RuneSelf || !endsWord(s[end-1])) {
		end--
	}
	groups := end // of a number
	for groups > floor && !isLetter(s[groups-1]) && s[groups-1] < utf8.RuneSelf {
		if tag := tagBefore(s, groups); tag >= floor {
			groups = tag
			continue
		}
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

// endsWord reports whether c ends a word.
func endsWord(c byte) bool { return endsValue(c) || strings.IndexByte(",;()[]{}|", c) >= 0 }

// valid replaces bytes that Postgres refuses in text: those that are not UTF-8, and NUL.
func valid(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	}
	return s
}

// cut shortens text over Limit, back to the end of a token and of a number.
func cut(s string) string {
	if len(s) <= Limit {
		return s
	}
	return TrimPartial(s[:Limit-cutSlack]) + CutMark
}
