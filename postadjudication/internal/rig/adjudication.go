package rig

import (
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

// Euros returns an amount of cents.
func Euros(minor int64) settlement.Money { return settlement.Money{Minor: minor, Currency: "EUR"} }

// Release returns an ordinary adjudication with an escrow of its own.
func Release(n int) postadjudication.Adjudication {
	return postadjudication.Adjudication{Instruction: settlement.Instruction{
		Tenant: "acme", TransactionReceiptID: fmt.Sprintf("txr_%d", n), SubmissionReceiptID: fmt.Sprintf("sub_%d", n),
		AdjudicationID: fmt.Sprintf("adj_%d", n), EscrowReference: fmt.Sprintf("esc_%d", n), Outcome: settlement.Release,
		Generation: 1, Amount: Euros(1000), Held: Euros(1000),
	}}
}

// Refund is Release with the opposite outcome.
func Refund(n int) postadjudication.Adjudication {
	a := Release(n)
	a.Outcome = settlement.Refund
	return a
}
