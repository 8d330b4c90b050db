package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/recourse-dev/recourse/settlement"
)

// Span is a length of time without the zeros at its end: 1h for 1h0m0s.
func Span(span string) string {
	if strings.HasSuffix(span, "m0s") {
		span = strings.TrimSuffix(span, "0s")
	}
	if strings.HasSuffix(span, "h0m") {
		span = strings.TrimSuffix(span, "0m")
	}
	return span
}

// Plural counts things.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Timestamp is a time in UTC, to the millisecond.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// YesNo is a truth value as a word.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Amounts are amounts by currency.
func Amounts(money map[string]int64) string {
	var out []string
	for _, currency := range slices.Sorted(maps.Keys(money)) {
		out = append(out, settlement.Money{Minor: money[currency], Currency: currency}.String())
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// Quote writes a word so that a command shell takes it as it is.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	if strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
