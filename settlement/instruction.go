package settlement

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of an instruction.
const (
	MaxIDBytes    = 128
	MaxGeneration = 1 << 30
)

// Instruction is an adjudication submitted for execution: move Amount out of an
// escrow that holds Held. A re-adjudication of the same transaction has a higher
// Generation.
type Instruction struct {
	Tenant, TransactionReceiptID, SubmissionReceiptID, AdjudicationID, EscrowReference string

	Outcome    Outcome
	Generation int
	Amount     Money // to move
	Held       Money // all that the escrow holds
}

// Validate returns everything that is wrong, as a join of *FieldError, each named
// as in JSON ("transaction_receipt_id", "held.currency"). All five ids are required:
// 1 to 128 bytes of UTF-8 without control characters.
func (i Instruction) Validate() error {
	var all []error
	refuse := func(field, problem string) {
		if problem != "" {
			all = append(all, &FieldError{Field: field, Problem: problem})
		}
	}
	refuse("tenant", idProblem(i.Tenant))
	refuse("transaction_receipt_id", idProblem(i.TransactionReceiptID))
	refuse("submission_receipt_id", idProblem(i.SubmissionReceiptID))
	refuse("adjudication_id", idProblem(i.AdjudicationID))
	refuse("escrow_reference", idProblem(i.EscrowReference))
	if _, err := ParseOutcome(string(i.Outcome)); err != nil {
		all = append(all, err)
	}
	refuse("generation", generationProblem(i.Generation))
	amount, held := i.Amount.problems("amount"), i.Held.problems("held")
	all = append(append(all, amount...), held...)
	if len(amount)+len(held) == 0 {
		switch {
		case i.Amount.Currency != i.Held.Currency:
			refuse("held.currency", "is not the currency of the amount")
		case i.Amount.Minor > i.Held.Minor:
			refuse("amount.minor", "is more than is held")
		}
	}
	return errors.Join(all...)
}

func idProblem(id string) string {
	switch {
	case id == "":
		return "is not given"
	case len(id) > MaxIDBytes:
		return fmt.Sprintf("is longer than %d bytes", MaxIDBytes)
	case !utf8.ValidString(id):
		return "is not UTF-8"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "has a control character"
	}
	return ""
}

func generationProblem(generation int) string {
	if generation < 1 || generation > MaxGeneration {
		return fmt.Sprintf("is not between 1 and %d", MaxGeneration)
	}
	return ""
}

// RetryKey is the canonical identity of the execution:
// "<transaction_receipt_id>:<outcome>". Since no outcome has a colon, two different
// executions never have the same key.
func (i Instruction) RetryKey() string { return i.TransactionReceiptID + ":" + string(i.Outcome) }

// Digest is the SHA-256 of everything that the instruction says, each field with
// its length before it. Two instructions of one generation that differ in it are
// not the same decision. It is stored, so its form does not change.
func (i Instruction) Digest() [32]byte {
	buf := make([]byte, 0, 512)
	text := func(s string) {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	number := func(n int64) { buf = binary.BigEndian.AppendUint64(buf, uint64(n)) }
	text("recourse/instruction/1")
	text(i.Tenant)
	text(i.TransactionReceiptID)
	text(i.SubmissionReceiptID)
	text(i.AdjudicationID)
	text(i.EscrowReference)
	text(string(i.Outcome))
	number(int64(i.Generation))
	for _, m := range []Money{i.Amount, i.Held} {
		number(m.Minor)
		text(m.Currency)
	}
	return sha256.Sum256(buf)
}

// Outcome is what an adjudication decides to do with the escrow's money.
type Outcome string

// The outcomes.
const (
	Release Outcome = "release" // pay it out
	Refund  Outcome = "refund"  // pay it back
)

// ParseOutcome reads an outcome as it is written on the wire: exactly "release" or
// "refund". Anything else is a *FieldError about "outcome".
func ParseOutcome(text string) (Outcome, error) {
	o := Outcome(text)
	if !o.known() {
		return "", &FieldError{Field: "outcome", Problem: fmt.Sprintf("is neither %s nor %s", Release, Refund)}
	}
	return o, nil
}

func (o Outcome) known() bool { return o == Release || o == Refund }
