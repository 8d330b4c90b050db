package validate

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// secretProblem is the problem of a field that holds a secret. It does not repeat the value.
const secretProblem = "looks like a secret, card or account number; give a reference instead"

// NoSecret refuses an id that holds a secret, since ids are stored forever, also in
// receipts.
func NoSecret(field, id string) error {
	if redact.ContainsSecret(id) {
		return &refusal.FieldError{Field: field, Problem: secretProblem}
	}
	return nil
}

// NoSecretIn refuses a payload that holds a secret and names the field.
func NoSecretIn(p json.RawMessage) error {
	if field, found := redact.Find(p); found {
		return SecretIn(field)
	}
	return nil
}

// SecretIn returns the refusal of a payload that holds a secret in a field.
func SecretIn(field string) error {
	return &refusal.FieldError{Field: Path("payload", field), Problem: secretProblem}
}

// Path returns the path of a field within outer. An empty path means outer itself.
func Path(outer, path string) string {
	if path == "" || path[0] == '[' {
		return outer + path
	}
	return outer + "." + path
}

// PlainText reports whether s is UTF-8 without control and format characters. Format
// characters (Cf) reorder text on screen or are invisible.
func PlainText(s string) bool {
	return !Controls(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Cf, r) })
}

// Controls reports whether s is invalid UTF-8 or has control characters.
func Controls(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
}

// Text refuses an empty text and one that is not plain text of at most limit bytes.
func Text(field, text string, limit int) error {
	if strings.TrimSpace(text) == "" || len(text) > limit || !PlainText(text) {
		return &refusal.FieldError{Field: field, Problem: fmt.Sprintf("must be 1 to %d bytes of plain text", limit)}
	}
	return nil
}

// Identifier is Text for an identifier. It also refuses a secret, since
// identifiers are stored unredacted.
func Identifier(field, text string, limit int) error {
	if err := Text(field, text, limit); err != nil {
		return err
	}
	return NoSecret(field, text)
}

// MaxReference is how many bytes of an escrow service's reference are kept.
const MaxReference = 255

// Reference returns the form in which an escrow service's reference is kept: with a mark in place of each secret, and one that is
// longer than MaxReference by its digest. Cut, it would name something else; left out, another one would not contradict it.
func Reference(s string) string {
	if s = receipts.CleanText(redact.Text(s)); len(s) <= MaxReference {
		return s
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s)))
}

// Clean redacts secrets in a text and cuts it to a number of bytes.
func Clean(s string, limit int) string {
	s = redact.Text(s)
	if len(s) > limit {
		s = s[:limit]
	}
	return receipts.CleanText(s)
}
