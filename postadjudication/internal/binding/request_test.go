package binding_test

import (
	"encoding/json"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/settlement"
)

// The bytes sent to the escrow service are the RFC 8785 form of the same members, whatever
// their texts.
func TestRequestIsCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		money := func() settlement.Money {
			return settlement.Money{Minor: rapid.Int64Range(0, settlement.MaxMinor).Draw(t, "minor"), Currency: text.Draw(t, "currency")}
		}
		in := settlement.Instruction{
			Tenant: text.Draw(t, "tenant"), TransactionReceiptID: text.Draw(t, "transaction"), SubmissionReceiptID: text.Draw(t, "submission"),
			AdjudicationID: text.Draw(t, "adjudication"), EscrowReference: text.Draw(t, "escrow"), Outcome: settlement.Outcome(text.Draw(t, "outcome")),
			Generation: rapid.IntRange(0, 1<<31).Draw(t, "generation"), Amount: money(), Held: money(),
		}
		payload, err := json.Marshal(rapid.MapOf(text, text).Draw(t, "payload"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := binding.Request(in, payload)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := json.Marshal(map[string]any{
			"adjudication_id": in.AdjudicationID, "amount": in.Amount, "escrow_reference": in.EscrowReference, "generation": in.Generation, "held": in.Held,
			"outcome": in.Outcome, "payload": json.RawMessage(payload), "submission_receipt_id": in.SubmissionReceiptID, "tenant": in.Tenant,
			"transaction_receipt_id": in.TransactionReceiptID,
		})
		if err != nil {
			t.Fatal(err)
		}
		want, err := jcs.Transform(plain)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("%s\nwant %s", got, want)
		}
	})
}
