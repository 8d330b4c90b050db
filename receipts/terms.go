package receipts

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Terms are the order of a run by its submitted receipt: what is sent, to whom, under which operation key.
// The zero Terms are those of a run without such a receipt.
type Terms struct {
	Case                 CaseID
	Run                  RunID
	Tenant               string
	At                   time.Time // when it was submitted
	TransactionReceiptID string
	Outcome              string // "release" or "refund"
	Generation           int
	Epoch                int
	Amount               int64 // in the minor unit of Currency
	Currency             string
	Target               string
	OperationKey         [32]byte
	RequestDigest        [32]byte // SHA-256 of the request bytes
	ContentDigest        [32]byte // digest of the submitted content; zero for a fork
}

// errNoTerms says that a body is not that of a submitted receipt of a run, or can't be read.
var errNoTerms = errors.New("receipts: no terms")

// Terms returns the terms of a draft of a submitted receipt; zero for another subtype.
func (d *Draft) Terms(c CaseID, tenant string) Terms {
	if d.Subtype != Submitted {
		return Terms{}
	}
	p := &d.Payload
	t := Terms{
		Case: c, Run: d.Run, Tenant: tenant, At: d.At.UTC().Truncate(time.Microsecond), TransactionReceiptID: p.TransactionReceiptID, Outcome: p.Outcome, Generation: p.Generation,
		Epoch: p.Epoch, Amount: p.Amount, Currency: p.Currency, Target: p.Target,
	}
	// A text that is no digest stays zero, which no key and no request equals.
	_ = digest(&t.OperationKey, p.OperationKey)
	_ = digest(&t.RequestDigest, p.RequestDigest)
	_ = digest(&t.ContentDigest, p.ContentDigest)
	return t
}

// ReadTerms reads the terms out of the body of a submitted receipt, without reading the rest of it: it takes
// a fraction of the time of Parse, and trusts that the body is as AppendBody wrote it. The error wraps
// errNoTerms.
func ReadTerms(body []byte) (Terms, error) {
	var t Terms
	var subtype string
	err := members(body, func(key, v []byte) (err error) {
		switch string(key) {
		case "at":
			err = t.At.UnmarshalText(unquoted(v))
		case "case":
			err = t.Case.UnmarshalText(unquoted(v))
		case "run":
			err = t.Run.UnmarshalText(unquoted(v))
		case "subtype":
			subtype = string(unquoted(v))
		case "tenant":
			t.Tenant, err = text(v)
		case "payload":
			err = t.payload(v)
		}
		return err
	})
	switch {
	case err != nil:
		return Terms{}, fmt.Errorf("%w: %w", errNoTerms, err)
	case Subtype(subtype) != Submitted:
		return Terms{}, fmt.Errorf("%w in a receipt %q", errNoTerms, subtype)
	}
	return t, nil
}

// payload reads the members that are terms.
func (t *Terms) payload(body []byte) error {
	return members(body, func(key, v []byte) (err error) {
		switch string(key) {
		case "amount":
			t.Amount, err = strconv.ParseInt(string(v), 10, 64)
		case "content_digest":
			err = digest(&t.ContentDigest, string(unquoted(v)))
		case "currency":
			t.Currency, err = text(v)
		case "epoch":
			t.Epoch, err = strconv.Atoi(string(v))
		case "generation":
			t.Generation, err = strconv.Atoi(string(v))
		case "operation_key":
			err = digest(&t.OperationKey, string(unquoted(v)))
		case "outcome":
			t.Outcome, err = text(v)
		case "request_digest":
			err = digest(&t.RequestDigest, string(unquoted(v)))
		case "target":
			t.Target, err = text(v)
		case "transaction_receipt_id":
			t.TransactionReceiptID, err = text(v)
		}
		return err
	})
}

var errNotCanonicalObject = errors.New("not a canonical object")

// members calls f with each member of a canonical JSON object: its key, which is a plain word, and the text
// of its value.
func members(object []byte, f func(key, value []byte) error) error {
	if len(object) < 2 || object[0] != '{' || object[len(object)-1] != '}' {
		return errNotCanonicalObject
	}
	for rest := object[1 : len(object)-1]; len(rest) > 0; {
		if rest[0] != '"' {
			return errNotCanonicalObject
		}
		end := bytes.IndexByte(rest[1:], '"') + 1
		if end < 1 || end+1 >= len(rest) || rest[end+1] != ':' {
			return errNotCanonicalObject
		}
		key := rest[1:end]
		rest = rest[end+2:]
		n := valueLen(rest)
		if n <= 0 || n < len(rest) && rest[n] != ',' {
			return errNotCanonicalObject
		}
		if err := f(key, rest[:n]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if n == len(rest) {
			return nil
		}
		rest = rest[n+1:]
	}
	return nil
}

// valueLen returns the length of the value that text begins with; 0 when it has no end.
func valueLen(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if i >= len(text) {
				return 0
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	if depth != 0 {
		return 0
	}
	return len(text)
}

// unquoted returns a JSON string without its quotes, escapes as they are.
func unquoted(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	return v[1 : len(v)-1]
}

// text reads a JSON string.
func text(v []byte) (s string, err error) {
	if u := unquoted(v); u != nil && bytes.IndexByte(u, '\\') < 0 {
		return string(u), nil
	}
	err = json.Unmarshal(v, &s)
	return s, err
}

// digest reads a SHA-256 from hexadecimal digits.
func digest(into *[32]byte, digits string) error {
	if len(digits) != 2*len(into) {
		return errors.New("is not a SHA-256 in hexadecimal digits")
	}
	var d [32]byte
	var plain [2 * len(d)]byte // avoids an allocation in every submission
	copy(plain[:], digits)
	if _, err := hex.Decode(d[:], plain[:]); err != nil {
		return err
	}
	*into = d
	return nil
}
