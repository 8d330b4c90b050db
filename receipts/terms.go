package receipts

import (
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
