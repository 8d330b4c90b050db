package postadjudication

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Every request is bound to the receipts: the submitted receipt of a run holds the digest of its
// request and its operation key, and never changes. Columns can be changed: they are sent only
// if the receipt agrees.
//
//	submitted receipt ─▶ Terms ─▶ checkBinding: key and digest, before each claim
//	                          └─▶ callOf: for each call and lookup

// alteredRequest is the error for a request that differs from the submitted one.
type alteredRequest string

func (a alteredRequest) Error() string {
	return "postadjudication: the request is not what the receipt of its submission says: " + string(a)
}

// Is reports background.ErrRequestAltered, the error of a claim.
func (a alteredRequest) Is(target error) bool { return target == background.ErrRequestAltered }

// checkBinding returns nil if a run's operation key and request match its submitted receipt,
// else an alteredRequest. For a plain task it compares the payload.
func checkBinding(r *background.Run) error {
	t := r.Terms
	switch {
	case t == nil || t.Run != r.ID || t.Case != r.Case || t.Tenant != r.Tenant:
		return alteredRequest("no receipt submits the run")
	case t.Target != r.Target:
		return alteredRequest("another escrow service")
	case t.OperationKey == [32]byte{} && r.Operation == [32]byte{}: // a plain task
		if t.RequestDigest != [32]byte{} && sha256.Sum256(r.Payload) != t.RequestDigest {
			return alteredRequest("another digest of the payload")
		}
		return nil
	case t.OperationKey != operationKeyOf(t) || t.OperationKey != r.Operation:
		return alteredRequest("another operation key")
	case t.RequestDigest != [32]byte{}:
		if sha256.Sum256(r.Payload) != t.RequestDigest {
			return alteredRequest("another digest of the request")
		}
		return nil
	}
	// A receipt of an older version: the content digest covers the whole request.
	content, err := contentOf(r.Payload, r.Target)
	if err != nil || t.ContentDigest != [32]byte{} && content != t.ContentDigest {
		return alteredRequest("another content of the request")
	}
	_, err = checkTerms(r)
	return err
}

// operationKeyOf derives the operation key from the terms of a run.
func operationKeyOf(t *receipts.Terms) OperationKey {
	a := Adjudication{Target: t.Target}
	a.Tenant, a.TransactionReceiptID, a.Outcome, a.Generation = t.Tenant, t.TransactionReceiptID, settlement.Outcome(t.Outcome), t.Generation
	return a.operationKey(t.Epoch)
}

// callOf returns the call of a run that is bound to its receipts. No other function makes a
// Call. The error is an alteredRequest, or that of a request that can't be parsed.
func callOf(r background.Run, attempt int) (Call, error) {
	if err := checkBinding(&r); err != nil {
		return Call{}, err
	}
	// The terms state what the request asks for: the receipt's digest binds the request to them,
	// and checkBinding parses and compares a request whose receipt has no digest.
	t := r.Terms
	if t.OperationKey == [32]byte{} {
		return Call{}, alteredRequest("no adjudication: its receipt submits a plain task")
	}
	return Call{
		OperationKey: r.Operation, Request: r.Payload, Tenant: r.Tenant, Target: r.Target, Run: r.ID, Attempt: attempt,
		Outcome: settlement.Outcome(t.Outcome), Amount: settlement.Money{Minor: t.Amount, Currency: t.Currency}, Generation: t.Generation,
	}, nil
}

// requestedPayment is what a request asks for.
type requestedPayment struct {
	Amount  settlement.Money   `json:"amount"`
	Outcome settlement.Outcome `json:"outcome"`
}

// checkTerms parses a run's request and compares it with its terms.
func checkTerms(r *background.Run) (o requestedPayment, err error) {
	if err := json.Unmarshal(r.Payload, &o); err != nil {
		return o, alteredRequest("it can't be read: " + err.Error())
	}
	if t := r.Terms; o.Amount != (settlement.Money{Minor: t.Amount, Currency: t.Currency}) || string(o.Outcome) != t.Outcome {
		return o, alteredRequest(fmt.Sprintf("another outcome or amount: %s of %d %s, not %s of %d %s",
			o.Outcome, o.Amount.Minor, o.Amount.Currency, t.Outcome, t.Amount, t.Currency))
	}
	return o, nil
}

// contentOf returns the digest of the content that a request was made from. See
// Adjudication.request and Adjudication.contentDigest.
func contentOf(request []byte, target string) ([32]byte, error) {
	var q struct {
		AdjudicationID       string             `json:"adjudication_id"`
		Amount               settlement.Money   `json:"amount"`
		EscrowReference      string             `json:"escrow_reference"`
		Generation           int                `json:"generation"`
		Held                 settlement.Money   `json:"held"`
		Outcome              settlement.Outcome `json:"outcome"`
		Payload              json.RawMessage    `json:"payload"`
		SubmissionReceiptID  string             `json:"submission_receipt_id"`
		Tenant               string             `json:"tenant"`
		TransactionReceiptID string             `json:"transaction_receipt_id"`
	}
	if err := json.Unmarshal(request, &q); err != nil {
		return [32]byte{}, err
	}
	a := Adjudication{Target: target, Instruction: settlement.Instruction{
		Tenant: q.Tenant, TransactionReceiptID: q.TransactionReceiptID, SubmissionReceiptID: q.SubmissionReceiptID, AdjudicationID: q.AdjudicationID,
		EscrowReference: q.EscrowReference, Outcome: q.Outcome, Generation: q.Generation, Amount: q.Amount, Held: q.Held,
	}}
	if same, err := a.request(q.Payload); err != nil || !bytes.Equal(same, request) {
		return [32]byte{}, errors.Join(errNotCanonical, err)
	}
	return a.contentDigest(q.Payload), nil
}

// errNotCanonical means that a request has members or a form that Adjudication.request never writes.
var errNotCanonical = errors.New("postadjudication: the request is not in its canonical form")

// requestDigest returns the digest of a request in the form of receipts.
func requestDigest(request []byte) string {
	d := sha256.Sum256(request)
	return hex.EncodeToString(d[:])
}
