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

// What is sent is bound to the receipts: the submitted receipt of a run says the digest
// of its request and its operation key, and is never changed. Columns can be: what they
// say is sent only if the receipt says the same.
//
//	submitted receipt ─▶ Terms ─▶ bound: key and digest, before each claim
//	                          └─▶ callOf: of each call and lookup

// altered tells that a request is not the one that was submitted.
type altered string

func (a altered) Error() string {
	return "postadjudication: the request is not what the receipt of its submission says: " + string(a)
}

// Is makes it the answer to a claim.
func (a altered) Is(target error) bool { return target == background.ErrRequestAltered }

// bound is nil when a run's operation key and request are those that its submitted
// receipt says, else an altered. Of a plain task it is the payload that is bound.
func bound(r *background.Run) error {
	t := r.Terms
	switch {
	case t == nil || t.Run != r.ID || t.Case != r.Case || t.Tenant != r.Tenant:
		return altered("no receipt submits the run")
	case t.Target != r.Target:
		return altered("another escrow service")
	case t.OperationKey == [32]byte{} && r.Operation == [32]byte{}: // a plain task
		if t.RequestDigest != [32]byte{} && sha256.Sum256(r.Payload) != t.RequestDigest {
			return altered("another digest of the payload")
		}
		return nil
	case t.OperationKey != keyOf(t) || t.OperationKey != r.Operation:
		return altered("another operation key")
	case t.RequestDigest != [32]byte{}:
		if sha256.Sum256(r.Payload) != t.RequestDigest {
			return altered("another digest of the request")
		}
		return nil
	}
	// A receipt of an older program: the digest of the content binds all of the request.
	content, err := contentOf(r.Payload, r.Target)
	if err != nil || t.ContentDigest != [32]byte{} && content != t.ContentDigest {
		return altered("another content of the request")
	}
	_, err = agreed(r)
	return err
}

// keyOf is the operation key that follows from the terms of a run.
func keyOf(t *receipts.Terms) OperationKey {
	a := Adjudication{Target: t.Target}
	a.Tenant, a.TransactionReceiptID, a.Outcome, a.Generation = t.Tenant, t.TransactionReceiptID, settlement.Outcome(t.Outcome), t.Generation
	return a.operationKey(t.Epoch)
}

// callOf is the one way to a Call: of a run that is bound to its receipts. The error is
// an altered, or that of a request that can't be read.
func callOf(r background.Run, attempt int) (Call, error) {
	if err := bound(&r); err != nil {
		return Call{}, err
	}
	// The request asks for what the terms say: the digest binds its bytes to the receipt that says
	// both, and bound reads and compares the request of a receipt without a digest.
	t := r.Terms
	if t.OperationKey == [32]byte{} {
		return Call{}, altered("no adjudication: its receipt submits a plain task")
	}
	return Call{
		OperationKey: r.Operation, Request: r.Payload, Tenant: r.Tenant, Target: r.Target, Run: r.ID, Attempt: attempt,
		Outcome: settlement.Outcome(t.Outcome), Amount: settlement.Money{Minor: t.Amount, Currency: t.Currency}, Generation: t.Generation,
	}, nil
}

// order is what a request asks for.
type order struct {
	Amount  settlement.Money   `json:"amount"`
	Outcome settlement.Outcome `json:"outcome"`
}

// agreed reads what a run's request asks for, and compares it with its terms.
func agreed(r *background.Run) (o order, err error) {
	if err := json.Unmarshal(r.Payload, &o); err != nil {
		return o, altered("it can't be read: " + err.Error())
	}
	if t := r.Terms; o.Amount != (settlement.Money{Minor: t.Amount, Currency: t.Currency}) || string(o.Outcome) != t.Outcome {
		return o, altered(fmt.Sprintf("another outcome or amount: %s of %d %s, not %s of %d %s",
			o.Outcome, o.Amount.Minor, o.Amount.Currency, t.Outcome, t.Amount, t.Currency))
	}
	return o, nil
}

// contentOf is the digest of the content that a request was made of. See
// Adjudication.request and Adjudication.content.
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
		return [32]byte{}, errors.Join(errNotOurs, err)
	}
	return a.content(q.Payload), nil
}

// errNotOurs tells that a request has members or a form that we never give it.
var errNotOurs = errors.New("postadjudication: the request is not in the form in which it is made")

// digestOf is the digest of a request as receipts say it.
func digestOf(request []byte) string {
	d := sha256.Sum256(request)
	return hex.EncodeToString(d[:])
}
