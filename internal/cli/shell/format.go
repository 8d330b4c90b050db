package shell

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/recourse-dev/recourse/settlement"
)

// Span returns a duration without trailing zero units: 1h for 1h0m0s.
func Span(span string) string {
	if strings.HasSuffix(span, "m0s") {
		span = strings.TrimSuffix(span, "0s")
	}
	if strings.HasSuffix(span, "h0m") {
		span = strings.TrimSuffix(span, "0m")
	}
	return span
}

// Plural returns "1 letter" or "2 letters".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Timestamp formats a time in UTC, in milliseconds.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// YesNo returns "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Amounts formats sums of money; "nothing" if there are none.
func Amounts(money settlement.Sums) string { return cmp.Or(money.String(), "nothing") }

// Quote quotes a word for a POSIX shell if that is needed.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	if strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
