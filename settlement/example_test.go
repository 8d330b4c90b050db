package settlement_test

import (
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/settlement"
)

// A release of 125 EUR of an escrow that holds 200 is decided, called and paid.
func ExampleApply() {
	escrow := settlement.Escrow{Held: 200_00}
	var state settlement.State
	for _, event := range []settlement.Event{
		{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 1, Amount: 125_00},
		{Fact: settlement.AttemptStarted},
		{Fact: settlement.Executed, Outcome: settlement.Release, Paid: 125_00},
	} {
		next, effect, err := settlement.Apply(state, event)
		if err != nil {
			panic(err)
		}
		state, escrow = next, escrow.Record(effect.Committed)
		fmt.Printf("%s: %s, reserved %d, released %d, committed %d\n", event.Fact, state.Progression, state.Reserved, state.Released, escrow.Committed)
	}
	_, _, err := settlement.Apply(state, settlement.Event{Fact: settlement.Readjudicated, Outcome: settlement.Refund, Generation: 2, Amount: 10_00})
	var refused *settlement.Refused
	fmt.Println(errors.As(err, &refused), refused.From, refused.Fact)
	// Output:
	// adjudicated: approved-for-settlement, reserved 12500, released 0, committed 12500
	// attempt-started: in-progress, reserved 12500, released 0, committed 12500
	// executed: settled, reserved 0, released 12500, committed 12500
	// true settled re-adjudicated
}

// A reservation is refused where the escrow has no room for it.
func ExampleEscrow_Add() {
	escrow := settlement.Escrow{Held: 200_00, Committed: 125_00}
	left, err := escrow.Add(75_00)
	fmt.Println(left.Committed, err)
	_, err = escrow.Add(75_01)
	fmt.Println(errors.Is(err, settlement.ErrExceedsHeld))
	// Output:
	// 20000 <nil>
	// true
}

func ExampleInstruction_RetryKey() {
	i := settlement.Instruction{TransactionReceiptID: "txr_1", Outcome: settlement.Refund}
	fmt.Println(i.RetryKey())
	// Output: txr_1:refund
}

func ExampleMoney() {
	fmt.Println(settlement.Money{Minor: 1_234_50, Currency: "EUR"})
	fmt.Println(settlement.Money{Minor: 1_234, Currency: "JPY"})
	fmt.Println(settlement.Money{Minor: 5, Currency: "XXX"}.Validate("amount"))
	// Output:
	// 1,234.50 EUR
	// 1,234 JPY
	// amount.currency is not an active ISO 4217 currency
}
