package settlement_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/settlement"
)

func instruction() settlement.Instruction {
	return settlement.Instruction{
		Tenant: "acme", TransactionReceiptID: "tx:1", SubmissionReceiptID: "sub-1", AdjudicationID: "adj-1", EscrowReference: "esc-1",
		Outcome: settlement.Release, Generation: 1, Amount: settlement.Money{100, "EUR"}, Held: settlement.Money{250, "EUR"},
	}
}

func TestAnInstructionIsCheckedFieldByField(t *testing.T) {
	t.Parallel()
	for _, ok := range []func(*settlement.Instruction){
		func(*settlement.Instruction) {},
		func(i *settlement.Instruction) { i.Amount = i.Held },
		func(i *settlement.Instruction) { i.Generation = settlement.MaxGeneration },
		func(i *settlement.Instruction) { i.Tenant = strings.Repeat("é", 64) },
	} {
		i := instruction()
		ok(&i)
		if err := i.Validate(); err != nil {
			t.Errorf("%+v: %v", i, err)
		}
	}
	for _, c := range []struct {
		fields string
		spoil  func(*settlement.Instruction)
	}{
		{"tenant", func(i *settlement.Instruction) { i.Tenant = "" }},
		{"transaction_receipt_id", func(i *settlement.Instruction) { i.TransactionReceiptID = strings.Repeat("x", 129) }},
		{"transaction_receipt_id", func(i *settlement.Instruction) { i.TransactionReceiptID = "" }},
		{"submission_receipt_id", func(i *settlement.Instruction) { i.SubmissionReceiptID = "" }},
		{"submission_receipt_id", func(i *settlement.Instruction) { i.SubmissionReceiptID = "a\x00" }},
		{"adjudication_id", func(i *settlement.Instruction) { i.AdjudicationID = "" }},
		{"adjudication_id", func(i *settlement.Instruction) { i.AdjudicationID = "a\u0085" }},
		{"escrow_reference", func(i *settlement.Instruction) { i.EscrowReference = "\xff" }},
		{"outcome", func(i *settlement.Instruction) { i.Outcome = "pay" }},
		{"generation", func(i *settlement.Instruction) { i.Generation = 0 }},
		{"generation", func(i *settlement.Instruction) { i.Generation = settlement.MaxGeneration + 1 }},
		{"amount.minor", func(i *settlement.Instruction) { i.Amount.Minor = 0 }},
		{"amount.minor", func(i *settlement.Instruction) { i.Amount.Minor = 251 }},
		{"held.currency", func(i *settlement.Instruction) { i.Held.Currency = "USD" }},
		{"amount.currency", func(i *settlement.Instruction) { i.Amount.Currency = "QQQ" }},
		{"held.minor", func(i *settlement.Instruction) { i.Held.Minor = settlement.MaxMinor + 1 }},
		{"amount.minor held.minor", func(i *settlement.Instruction) { i.Amount.Minor, i.Held.Minor = -1, -2 }},
		{
			"tenant transaction_receipt_id submission_receipt_id adjudication_id escrow_reference outcome generation amount.minor amount.currency held.minor held.currency",
			func(i *settlement.Instruction) { *i = settlement.Instruction{} },
		},
	} {
		i := instruction()
		c.spoil(&i)
		if got := fields(i.Validate()); !slices.Equal(got, strings.Fields(c.fields)) {
			t.Errorf("%+v: errors about %q, want %q", i, got, c.fields)
		}
	}
}

func TestTheRetryKeyIsTransactionAndOutcome(t *testing.T) {
	t.Parallel()
	if got := instruction().RetryKey(); got != "tx:1:release" {
		t.Error(got)
	}
}

func TestTheDigestTellsEveryDifference(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]int{}
	for n, change := range []func(*settlement.Instruction){
		func(*settlement.Instruction) {},
		func(i *settlement.Instruction) { i.Tenant = "acm" },
		func(i *settlement.Instruction) { i.Tenant, i.TransactionReceiptID = "acmet", "x:1" }, // the same bytes in other fields
		func(i *settlement.Instruction) { i.TransactionReceiptID = "tx:2" },
		func(i *settlement.Instruction) { i.SubmissionReceiptID = "sub-2" },
		func(i *settlement.Instruction) { i.AdjudicationID = "adj-2" },
		func(i *settlement.Instruction) {
			i.SubmissionReceiptID, i.AdjudicationID = i.AdjudicationID, i.SubmissionReceiptID
		},
		func(i *settlement.Instruction) { i.EscrowReference = "esc-2" },
		func(i *settlement.Instruction) { i.Outcome = settlement.Refund },
		func(i *settlement.Instruction) { i.Generation = 2 },
		func(i *settlement.Instruction) { i.Amount.Minor = 101 },
		func(i *settlement.Instruction) { i.Amount.Currency = "USD" },
		func(i *settlement.Instruction) { i.Held.Minor = 251 },
		func(i *settlement.Instruction) { i.Held.Currency = "USD" },
	} {
		i := instruction()
		change(&i)
		d := i.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("changes %d and %d have one digest", other, n)
		}
		seen[d] = n
		if i.Digest() != d {
			t.Errorf("change %d has two digests", n)
		}
	}
}

// The digest is stored with each case and compared with later submissions.
func TestTheDigestIsTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	d := instruction().Digest()
	if got := hex.EncodeToString(d[:]); got != "e960711ba089246c1ed2da2cfac7cec3458c94121eae9e4472dbae20d560364b" {
		t.Error(got)
	}
}

func FuzzInstruction(f *testing.F) {
	f.Add("acme", "tx:1", "release", 1, int64(100), int64(250))
	f.Add("", "\xff", "refund", 0, int64(-1), int64(0))
	f.Add("a\u0085", "tx:refund", "x:refund", 1<<30+1, int64(settlement.MaxMinor), int64(settlement.MaxMinor))
	f.Fuzz(func(t *testing.T, tenant, transaction, outcome string, generation int, amount, held int64) {
		i := instruction()
		i.Tenant, i.TransactionReceiptID, i.Outcome, i.Generation = tenant, transaction, settlement.Outcome(outcome), generation
		i.Amount.Minor, i.Held.Minor = amount, held
		err := i.Validate()
		if err != nil && len(fields(err)) == 0 {
			t.Errorf("%+v: %v names no field", i, err)
		}
		key := i.RetryKey()
		if err == nil && (!utf8.ValidString(key) || amount > held || amount < 1 || key[:strings.LastIndex(key, ":")] != transaction) {
			t.Errorf("%+v passes, its key is %q", i, key)
		}
	})
}
