package binding

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// DefaultTarget is the target of an instruction that names none.
const DefaultTarget = "escrow"

// RemotePrefix begins the name of a target whose calls remote workers make; the rest is their queue.
const RemotePrefix = "queue:"

// targetName returns the name of a target, which may be empty for DefaultTarget.
func targetName(name string) string {
	if name == "" {
		return DefaultTarget
	}
	return name
}

// OperationKey is equal for all attempts and forks of one decision and differs between
// decisions. It depends on neither run, attempt nor clock. An empty target is DefaultTarget.
func OperationKey(i settlement.Instruction, target string, epoch int) [32]byte {
	h := sha256.New()
	for _, s := range []string{"recourse operation 1", i.Tenant, targetName(target), i.TransactionReceiptID, string(i.Outcome)} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		h.Write([]byte(s))
	}
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(i.Generation)))
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(epoch)))
	return [32]byte(h.Sum(nil))
}

// ContentDigest differs between different instructions of the same generation. canonical is
// the caller's payload in its canonical form; an empty target is DefaultTarget.
func ContentDigest(i settlement.Instruction, target string, canonical json.RawMessage) [32]byte {
	d := i.Digest()
	h := sha256.New()
	h.Write(d[:])
	h.Write([]byte(targetName(target)))
	h.Write([]byte{0})
	h.Write(canonical)
	return [32]byte(h.Sum(nil))
}

// CanonicalPayload returns the RFC 8785 canonical JSON of a payload. A number beyond the range of a
// double becomes the nearest double: callers refuse it before. The error is a *settlement.FieldError.
func CanonicalPayload(payload json.RawMessage) (json.RawMessage, error) {
	text := jsontext.Value(bytes.Clone(payload))
	err := text.Canonicalize()
	if wrong := (*jsontext.SyntacticError)(nil); errors.As(err, &wrong) {
		err = wrong.Err // without the path, whose names may be long or secret
	}
	if err != nil {
		return nil, &settlement.FieldError{Field: "payload", Problem: "has no canonical form: " + err.Error()}
	}
	return json.RawMessage(text), nil
}

// Request returns the bytes sent to the escrow service. payload need not be canonical. The
// error is a *settlement.FieldError for a payload that has no canonical form.
func Request(i settlement.Instruction, payload json.RawMessage) ([]byte, error) {
	canonical := json.RawMessage("{}")
	if string(payload) != "{}" {
		var err error
		if canonical, err = CanonicalPayload(payload); err != nil {
			return nil, err
		}
	}
	return CanonicalRequest(i, canonical), nil
}

// CanonicalRequest returns the bytes sent to the escrow service, equal on every attempt: RFC
// 8785 canonical JSON. canonical must be the payload in its canonical form.
func CanonicalRequest(i settlement.Instruction, canonical json.RawMessage) []byte {
	b := make([]byte, 0, 320+len(canonical))
	member := func(key, value string) {
		b = append(b, key...)
		b = receipts.AppendText(b, value)
	}
	money := func(key string, m settlement.Money) {
		member(key+`{"currency":`, m.Currency)
		b = append(strconv.AppendInt(append(b, `,"minor":`...), m.Minor, 10), '}')
	}
	member(`{"adjudication_id":`, i.AdjudicationID)
	money(`,"amount":`, i.Amount)
	member(`,"escrow_reference":`, i.EscrowReference)
	b = strconv.AppendInt(append(b, `,"generation":`...), int64(i.Generation), 10)
	money(`,"held":`, i.Held)
	member(`,"outcome":`, string(i.Outcome))
	b = append(append(b, `,"payload":`...), canonical...)
	member(`,"submission_receipt_id":`, i.SubmissionReceiptID)
	member(`,"tenant":`, i.Tenant)
	member(`,"transaction_receipt_id":`, i.TransactionReceiptID)
	return append(b, '}')
}

// ContentOf returns the digest of the content that a request was made from: ContentDigest of
// what Request was given. It returns an error for bytes that Request does not write.
func ContentOf(request []byte, target string) ([32]byte, error) {
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
	i := settlement.Instruction{
		Tenant: q.Tenant, TransactionReceiptID: q.TransactionReceiptID, SubmissionReceiptID: q.SubmissionReceiptID, AdjudicationID: q.AdjudicationID,
		EscrowReference: q.EscrowReference, Outcome: q.Outcome, Generation: q.Generation, Amount: q.Amount, Held: q.Held,
	}
	if same, err := Request(i, q.Payload); err != nil || !bytes.Equal(same, request) {
		return [32]byte{}, errors.Join(errNotCanonical, err)
	}
	return ContentDigest(i, target, q.Payload), nil
}

// errNotCanonical means that a request has members or a form that Request never writes.
var errNotCanonical = errors.New("postadjudication: the request is not in its canonical form")

// RequestDigest returns the digest of a request in the form of receipts.
func RequestDigest(request []byte) string {
	d := sha256.Sum256(request)
	return hex.EncodeToString(d[:])
}
