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

// alteredRequest tells that a request is not the one that was submitted.
type alteredRequest string

func (a alteredRequest) Error() string {
	return "postadjudication: the request is not what the receipt of its submission says: " + string(a)
}

// Is makes it the answer to a claim.
func (a alteredRequest) Is(target error) bool { return target == background.ErrRequestAltered }

// checkBinding is nil when a run's operation key and request are those that its submitted
// receipt says, else an altered. Of a plain task it is the payload that is bound.
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
	// A receipt of an older program: the digest of the content binds all of the request.
	content, err := contentOf(r.Payload, r.Target)
	if err != nil || t.ContentDigest != [32]byte{} && content != t.ContentDigest {
		return alteredRequest("another content of the request")
	}
	_, err = checkTerms(r)
	return err
}

// operationKeyOf is the operation key that follows from the terms of a run.
func operationKeyOf(t *receipts.Terms) OperationKey {
	a := Adjudication{Target: t.Target}
	a.Tenant, a.TransactionReceiptID, a.Outcome, a.Generation = t.Tenant, t.TransactionReceiptID, settlement.Outcome(t.Outcome), t.Generation
	return a.operationKey(t.Epoch)
}

// callOf is the one way to a Call: of a run that is bound to its receipts. The error is
// an altered, or that of a request that can't be read.
func callOf(r background.Run, attempt int) (Call, error) {
	if err := checkBinding(&r); err != nil {
		return Call{}, err
	}
	// The request asks for what the terms say: the digest binds its bytes to the receipt that says
	// both, and bound reads and compares the request of a receipt without a digest.
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

// checkTerms reads what a run's request asks for, and compares it with its terms.
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
		return [32]byte{}, errors.Join(errNotCanonical, err)
	}
	return a.contentDigest(q.Payload), nil
}

// errNotCanonical tells that a request has members or a form that we never give it.
var errNotCanonical = errors.New("postadjudication: the request is not in the form in which it is made")

// requestDigest is the digest of a request as receipts say it.
func requestDigest(request []byte) string {
	d := sha256.Sum256(request)
	return hex.EncodeToString(d[:])
}
