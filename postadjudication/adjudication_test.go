package postadjudication

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

func TestPlainTextHasNoCharacterThatMisleadsAReader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "user:ada", "die Straße, 日本, é"} {
		if !validate.PlainText(text) {
			t.Errorf("%q is refused", text)
		}
	}
	for _, text := range []string{"\x1b[31m", "user:\u009b31mada", "\u202euser:ada", "user:ada\u200b", "\u2066x", "a\nb", "\ufeffx", "\u00ad", "\xff"} {
		if validate.PlainText(text) {
			t.Errorf("%q is accepted", text)
		}
	}
}

// The bytes sent to the escrow service are the RFC 8785 form of the same members, whatever
// their texts.
func TestRequestIsCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		money := func() settlement.Money {
			return settlement.Money{Minor: rapid.Int64Range(0, settlement.MaxMinor).Draw(t, "minor"), Currency: text.Draw(t, "currency")}
		}
		a := Adjudication{Instruction: settlement.Instruction{
			Tenant: text.Draw(t, "tenant"), TransactionReceiptID: text.Draw(t, "transaction"), SubmissionReceiptID: text.Draw(t, "submission"),
			AdjudicationID: text.Draw(t, "adjudication"), EscrowReference: text.Draw(t, "escrow"), Outcome: settlement.Outcome(text.Draw(t, "outcome")),
			Generation: rapid.IntRange(0, 1<<31).Draw(t, "generation"), Amount: money(), Held: money(),
		}}
		payload, err := json.Marshal(rapid.MapOf(text, text).Draw(t, "payload"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := binding.Request(a.Instruction, payload)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := json.Marshal(map[string]any{
			"adjudication_id": a.AdjudicationID, "amount": a.Amount, "escrow_reference": a.EscrowReference, "generation": a.Generation, "held": a.Held,
			"outcome": a.Outcome, "payload": json.RawMessage(payload), "submission_receipt_id": a.SubmissionReceiptID, "tenant": a.Tenant,
			"transaction_receipt_id": a.TransactionReceiptID,
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

// A number that canonical JSON would round is refused with its path.
func TestAPayloadNamesTheNumberThatWouldBeRounded(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"a":9007199254740993}`:                "payload.a",
		`{"a":[1,{"b":[0,-9007199254740993]}]}`: "payload.a[1].b[1]",
		`{"a":9007199254740993.0}`:              "payload.a",
		`{"a":12345678901234567890e0}`:          "payload.a",
		`{"a":[-900719925474099.3e1]}`:          "payload.a[0]",
		`{"a":1e400}`:                           "payload.a",
		`{"a":1e-400}`:                          "payload.a",
		`{"a":[1e300,1.50e20,0.000,-0e9,5e-324,9007199254740994.0]}`:    "",
		`{"a":9007199254740991,"b":0.1,"c":[1e3,-0]}`:                   "",
		`{"\"1":"\\","a":[true,null,-1E-9,1E400]}`:                      "payload.a[3]",
		`{"\"":"9007199254740993, \\\" 1e400","9007199254740993":"\\"}`: "",
	} {
		_, err := canonicalPayload(json.RawMessage(text))
		var refused *refusal.FieldError
		if errors.As(err, &refused); (refused == nil) != (field == "") || refused != nil && refused.Field != field {
			t.Errorf("%s: %v, want %q", text, err, field)
		}
	}
}
