package redact

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// Find names the first secret in JSON by its path from the root, as in "card.number" or "items[2]"; a value that is the
// whole document has the path "". A secret is a string (a key too, named by its parent's path) that [Text] would
// rewrite, a value that is not empty under a secret name, or a number that is a card. Of the digits that pass the
// Luhn check only those count that a card scheme gives out, so that timestamps are not refused.
//
// Every duplicate of a key is looked at, however long the document. What follows a syntax error is read as free text.
func Find(data json.RawMessage) (field string, found bool) {
	w := walk{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return "", false
		}
		if err != nil {
			return Text(w.path()), holds(string(data[dec.InputOffset():]))
		}
		if w.secret(token) {
			return Text(w.path()), true
		}
		w.step(token)
	}
}

// level is one open object or array: the key being read, or the index.
type level struct {
	array   bool
	index   int
	key     string
	wantKey bool
}

// walk is the place in a document.
type walk struct{ open []level }

// secret looks at a token before the walk steps over it.
func (w *walk) secret(token json.Token) bool {
	switch v := token.(type) {
	case string:
		if w.atKey() {
			return holds(v)
		}
		return holds(v) || (v != "" && v != RedactedMark && w.name().secret())
	case json.Number:
		digits := []byte(v.String())
		return isCardNumber(digits) || (isCardField(w.name()))
	}
	return false
}

// atKey reports whether the next string is a key.
func (w *walk) atKey() bool {
	return len(w.open) > 0 && w.open[len(w.open)-1].wantKey
}

// name is the nearest key above the value, so that a list under a secret name is secret.
func (w *walk) name() name {
	for i := len(w.open) - 1; i >= 0; i-- {
		if !w.open[i].array {
			return nameBefore(w.open[i].key, len(w.open[i].key))
		}
	}
	return name{}
}

// step moves past a token.
func (w *walk) step(token json.Token) {
	if d, ok := token.(json.Delim); ok {
		switch d {
		case '{':
			w.open = append(w.open, level{wantKey: true})
			return
		case '[':
			w.open = append(w.open, level{array: true})
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
		top.key, _ = token.(string)
		top.wantKey = false
	default:
		top.key, top.wantKey = "", true
	}
}

func (w *walk) path() string {
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
	return issued(digits)
}

// isCardField reports whether a bare number under this name is card data: a verification code is three digits.
func isCardField(n name) bool {
	switch n.text {
	case "cvv", "cvc", "cvv2", "cvc2", "pan":
		return n.whole
	}
	return false
}
