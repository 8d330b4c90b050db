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
	// cutSlack leaves room for marks that a later pass writes, so that cut text is not cut again.
	cutSlack = 256
	// cutReach is how far a cut goes back to avoid ending inside a token: half a card number is still telling.
	cutReach = 256
)

// Text returns s without secrets: valid UTF-8 without NUL (as Postgres demands), at most [Limit] bytes.
// It takes time linear in min(len(s), Limit), and Text(Text(s)) == Text(s).
func Text(s string) string {
	for range maxPasses {
		next := rewrite(valid(cut(s)))
		if next == s {
			return s
		}
		s = next
	}
	return WithheldMark
}

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

// cut shortens text over Limit, going back to the end of a token and of a number where one is near.
func cut(s string) string {
	if len(s) <= Limit {
		return s
	}
	end := Limit - cutSlack
	for end > 0 && !utf8.RuneStart(s[end]) && end > Limit-cutSlack-utf8.UTFMax {
		end--
	}
	floor := end - cutReach
	if at := strings.LastIndexAny(s[floor:end], " \t\n&,;"); at >= 0 {
		end = floor + at
	}
	for end > floor && (isDigit(s[end-1]) || s[end-1] == ' ' || s[end-1] == '-') {
		end--
	}
	return s[:end] + CutMark
}
