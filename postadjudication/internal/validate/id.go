package validate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// idForm is the form of an id that every refusal names.
const idForm = "an id is in Unicode form NFC, has no format, invisible, private-use or unassigned character, and no blank but U+0020, which is neither its first nor its last character"

// NewID is Identifier for an id that may be new. It also refuses what IDForm refuses.
func NewID(field, id string, limit int) error {
	if err := KnownID(field, id, limit); err != nil {
		return err
	}
	if err := IDForm(field, id); err != nil {
		return err
	}
	return NoSecret(field, id)
}

// KnownID refuses an id that no version has accepted, for requests that read, filter, plan or free: 1 to limit
// bytes of UTF-8 without control characters. Earlier versions accepted ids that IDForm refuses.
func KnownID(field, id string, limit int) error {
	if id == "" || len(id) > limit || Controls(id) {
		return &refusal.FieldError{Field: field, Problem: fmt.Sprintf("must be 1 to %d bytes of UTF-8 without control characters", limit)}
	}
	return nil
}

// IDForm refuses a form of an id in which a reader can't tell it from another one: bytes are the identity of an id, and
// the service would pay a second id a second time. It does not refuse letters and signs that look alike. The refusal
// names the first wrong code point, and the form that is accepted. What KnownID refuses, and an empty id, it accepts.
func IDForm(field, id string) error {
	if isPlainASCII(id) || Controls(id) {
		return nil
	}
	if problem := idProblem(id); problem != "" {
		return &refusal.FieldError{Field: field, Problem: problem + "; " + idForm}
	}
	return nil
}

// isPlainASCII reports whether an id has only printable characters of ASCII, and no blank at an end.
func isPlainASCII(id string) bool {
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return id == "" || id[0] != ' ' && id[len(id)-1] != ' '
}

func idProblem(id string) string {
	for at, r := range id {
		atEnd := at == 0 || at+utf8.RuneLen(r) == len(id)
		if kind := wrongKind(r, atEnd); kind != "" {
			return fmt.Sprintf("has %U, %s", r, kind)
		}
	}
	if composed := norm.NFC.String(id); composed != id {
		at := firstDifference(id, composed)
		return fmt.Sprintf("has %s where NFC has %s", codePointsOf(id[at:]), codePointsOf(composed[at:]))
	}
	return ""
}

// brailleBlank looks like a blank, and is a symbol to Unicode.
const brailleBlank = '\u2800'

// wrongKind returns what a character is that no id has there; empty if an id can have it.
func wrongKind(r rune, atEnd bool) string {
	switch {
	case r == ' ' && atEnd:
		return "a blank at an end"
	case r != ' ' && unicode.Is(unicode.Z, r) || r == brailleBlank:
		return "another blank than U+0020"
	case unicode.Is(unicode.Cf, r):
		return "a format character"
	case unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return "an invisible character"
	case unicode.Is(unicode.Co, r):
		return "a private-use character"
	case !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z):
		return "an unassigned code point"
	}
	return ""
}

// firstDifference returns where the first character begins in which two texts differ.
func firstDifference(a, b string) int {
	for at, r := range a {
		if other, _ := utf8.DecodeRuneInString(b[min(at, len(b)):]); other != r {
			return at
		}
	}
	return len(a)
}

// codePointsOf names the first character of a text with the marks that belong to it, of which it names at most three.
func codePointsOf(text string) string {
	first := text[:norm.NFC.NextBoundaryInString(text, true)]
	var names []string
	for _, r := range first {
		if len(names) == 4 {
			names = append(names, "...")
			break
		}
		names = append(names, fmt.Sprintf("%U", r))
	}
	return strings.Join(names, " ")
}
