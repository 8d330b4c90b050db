package redact

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// Find returns the path, from the root, of the first secret in JSON, such as "card.number" or "items[2]"; the path of
// a document that is a single value is "". Secrets are:
//   - a string that [Text] would rewrite; for a key the path is that of its parent
//   - a non-empty string or a number under a secret name, at any depth of lists and objects below it
//   - a number that is a card
//
// The values below "authorization" are judged singly: a payment may have an object of that name. Digits that pass the
// Luhn check count only if a card scheme issues such numbers, so that timestamps are not refused.
//
// Find checks every duplicate of a key, however long the document is. It reads text after a syntax error as free text.
func Find(data json.RawMessage) (field string, found bool) { return FindUnless(data, nil) }

// FindUnless is Find, but for values that a caller knows as references of a bank, and no numbers of cards. isReference gets
// the JSON Pointer of a value (RFC 6901) and the value, a number as it is written. In the pointer * stands for every element of a
// list, and ~2 for the name *, so that no two paths are equal. A reference is still found if it holds another secret than
// a number of a card, or stands under a secret name.
func FindUnless(data json.RawMessage, isReference func(pointer, value string) bool) (field string, found bool) {
	w := documentPosition{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return "", false
		}
		if err != nil {
			return Text(w.path()), ContainsSecret(string(data[dec.InputOffset():]))
		}
		if w.secret(token) && (isReference == nil || !w.isReference(token, isReference)) {
			return Text(w.path()), true
		}
		w.step(token)
	}
}

// isReference reports whether the next token, which is a secret, is a reference and nothing else that is secret.
func (w *documentPosition) isReference(token json.Token, known func(pointer, value string) bool) bool {
	if w.underSecret() {
		return false
	}
	switch v := token.(type) {
	case string:
		return !w.atKey() && known(w.pointer(), v) && !HoldsMoreThanCards(v)
	case json.Number:
		return known(w.pointer(), v.String())
	}
	return false
}

// Document returns JSON with [RedactedMark] in place of each value that [Find] takes for a secret. All other bytes stay. ok is
// false if that is not possible: a name is a secret, or the text is no JSON.
func Document(data json.RawMessage) (_ json.RawMessage, ok bool) {
	if !json.Valid(data) {
		return nil, false
	}
	w := documentPosition{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out []byte
	kept := 0
	for {
		from := dec.InputOffset()
		token, err := dec.Token()
		if err == io.EOF {
			return append(out, data[kept:]...), true
		}
		if err != nil || w.atKey() && w.secret(token) {
			return nil, false
		}
		if w.secret(token) {
			between := len(data[from:]) - len(bytes.TrimLeft(data[from:], " \t\r\n:,"))
			out = append(append(out, data[kept:int(from)+between]...), `"`+RedactedMark+`"`...)
			kept = int(dec.InputOffset())
		}
		w.step(token)
	}
}

// level is an open object or array: the current key or index.
type level struct {
	array   bool
	index   int
	key     string
	wantKey bool

	// secret reports whether the key of the nearest object is a secret name.
	secret bool
	// inherited reports whether that name also makes values in the objects below it secret.
	inherited bool
	// inheritedAbove reports whether a name above the nearest object does so.
	inheritedAbove bool
	// names reports whether a member "name" before is a secret name: the member "value" has its value (HAR).
	names bool
}

// opened returns the level of a list or object inside l.
func (l level) opened(array bool) level {
	if array {
		return level{array: true, secret: l.secret, inherited: l.inherited, inheritedAbove: l.inheritedAbove}
	}
	return level{wantKey: true, inheritedAbove: l.inheritedAbove || l.inherited}
}

// named sets the current key.
func (l *level) named(key string) {
	n := nameBefore(key, len(key))
	l.key, l.wantKey = key, false
	l.secret = n.secret() || n.code() || l.names && key == "value"
	l.inherited = l.secret && !strings.HasSuffix(n.text, "authorization")
}

// documentPosition is a position in a document.
type documentPosition struct{ open []level }

// secret reports whether the next token is a secret.
func (w *documentPosition) secret(token json.Token) bool {
	switch v := token.(type) {
	case string:
		if w.atKey() {
			return ContainsSecret(v)
		}
		return ContainsSecret(v) || (v != "" && v != RedactedMark && w.underSecret())
	case json.Number:
		digits := []byte(strings.TrimSuffix(v.String(), ".0"))
		if number, end := floatDigits(v.String()); end == len(v.String()) {
			digits = number
		}
		return isCardNumber(digits) || w.underSecret()
	}
	return false
}

// atKey reports whether the next string is a key.
func (w *documentPosition) atKey() bool {
	return w.top().wantKey
}

// underSecret reports whether the value is under a secret name.
func (w *documentPosition) underSecret() bool {
	l := w.top()
	return l.secret || l.inheritedAbove
}

// top returns the innermost level; if nothing is open, one without a name.
func (w *documentPosition) top() level {
	if len(w.open) == 0 {
		return level{}
	}
	return w.open[len(w.open)-1]
}

// step moves past a token.
func (w *documentPosition) step(token json.Token) {
	if d, ok := token.(json.Delim); ok {
		if d == '{' || d == '[' {
			w.open = append(w.open, w.top().opened(d == '['))
			return
		}
		w.open = w.open[:len(w.open)-1]
	}
	if len(w.open) == 0 {
		return
	}
	top := &w.open[len(w.open)-1]
	switch {
	case top.array:
		top.index++
	case top.wantKey:
		key, _ := token.(string)
		top.named(key)
	default:
		if text, ok := token.(string); ok && top.key == "name" {
			top.names = nameBefore(text, len(text)).secret()
		}
		top.key, top.wantKey = "", true
	}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns the JSON Pointer of the position; see FindUnless.
func (w *documentPosition) pointer() string {
	var b strings.Builder
	for _, l := range w.open {
		switch {
		case l.array:
			b.WriteString("/*")
		case l.wantKey:
		case l.key == "*":
			b.WriteString("/~2")
		default:
			b.WriteString("/" + pointerEscapes.Replace(l.key))
		}
	}
	return b.String()
}

func (w *documentPosition) path() string {
	var b strings.Builder
	for _, l := range w.open {
		if l.array {
			b.WriteString("[" + strconv.Itoa(l.index) + "]")
			continue
		}
		if l.wantKey {
			break
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(l.key)
	}
	return b.String()
}

func isCardNumber(digits []byte) bool {
	if len(digits) < minCard || len(digits) > maxCard {
		return false
	}
	for _, c := range digits {
		if !isDigit(c) {
			return false
		}
	}
	return isIssuedCard(digits)
}
