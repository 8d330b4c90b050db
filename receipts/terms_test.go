package receipts_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/receipts"
)

var caseOfTerms = receipts.CaseID{1, 2, 3}

// ReadTerms returns the terms of the draft, whatever texts the draft has.
func TestTermsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		d.Subtype = receipts.Submitted
		if d.Run.IsZero() {
			d.Run = runA
		}
		for name, p := range map[string]*string{"key": &d.Payload.OperationKey, "request": &d.Payload.RequestDigest, "content": &d.Payload.ContentDigest} {
			*p = ""
			if rapid.Bool().Draw(t, name) {
				*p = hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, name))
			}
		}
		tenant := drawText.Filter(func(s string) bool { return s != "" }).Draw(t, "tenant")
		body, err := d.AppendBody(nil, caseOfTerms, tenant)
		if err != nil {
			t.Fatal(err)
		}
		read, err := receipts.ReadTerms(body)
		if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if want := d.Terms(caseOfTerms, tenant); read != want {
			t.Fatalf("read %+v\nsaid %+v\n%s", read, want, body)
		}
	})
}

func TestOnlyASubmittedReceiptHasTerms(t *testing.T) {
	t.Parallel()
	d := receipts.Draft{Run: runA, Subtype: receipts.AttemptStarted, Actor: "worker:a", At: testAt, Payload: receipts.Payload{Attempt: 1}}
	body, err := d.AppendBody(nil, caseOfTerms, "acme")
	if err != nil {
		t.Fatal(err)
	}
	if terms, err := receipts.ReadTerms(body); !errors.Is(err, receipts.ErrNoTerms) || terms != (receipts.Terms{}) {
		t.Errorf("%+v, %v", terms, err)
	}
	if terms := d.Terms(caseOfTerms, "acme"); terms != (receipts.Terms{}) {
		t.Errorf("%+v", terms)
	}
}

func TestABodyThatIsNoneHasNoTerms(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", "{}", "[]", "{", `{"case"}`, `{"case":`, `{"case":"x"`, `{"case":"x"}`, `{"subtype":"submitted","payload":{"amount":"1"}}`, `{"subtype":"submitted","payload":{"operation_key":"12"}}`,
		`{"subtype":"submitted","payload":{"a":"\`, `{"subtype":"submitted" "payload":{}}`,
	} {
		if terms, err := receipts.ReadTerms([]byte(body)); !errors.Is(err, receipts.ErrNoTerms) || terms != (receipts.Terms{}) {
			t.Errorf("%q: %+v, %v", body, terms, err)
		}
	}
}

// Members of a newer program are ignored.
func TestTermsAreReadAmongMembersThatAreNotKnown(t *testing.T) {
	t.Parallel()
	body := `{"a":[1,{"b":"]"}],"case":"` + caseOfTerms.String() + `","payload":{"amount":5,"new":[[1,2],"x,\"}"],"target":"escrow"},"run":"` + runA.String() + `","subtype":"submitted","tenant":"acme"}`
	terms, err := receipts.ReadTerms([]byte(body))
	if want := (receipts.Terms{Case: caseOfTerms, Run: runA, Tenant: "acme", Amount: 5, Target: "escrow"}); err != nil || terms != want {
		t.Errorf("%+v, %v", terms, err)
	}
}

func BenchmarkReadTerms(b *testing.B) {
	d := receipts.Draft{Run: runA, Subtype: receipts.Submitted, Actor: "system:escrow", At: testAt, Payload: receipts.Payload{
		AdjudicationID: "adj_1", SubmissionReceiptID: "sub_1", TransactionReceiptID: "txr_1", EscrowReference: "esc_1", Outcome: "release", Generation: 1, Amount: 1000,
		Held: 1000, Currency: "EUR", RetryKey: "txr_1:release", OperationKey: hex.EncodeToString(make([]byte, 32)), RequestDigest: hex.EncodeToString(make([]byte, 32)),
		ContentDigest: hex.EncodeToString(make([]byte, 32)), Family: "settlement", Queue: "settlement:1", Target: "escrow", Policy: `{"max_retry_attempts":3,"base_delay":"25ms"}`, Settlement: &receipts.SettlementSnapshot{},
	}}
	body, err := d.AppendBody(nil, caseOfTerms, "acme")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := receipts.ReadTerms(body); err != nil {
			b.Fatal(err)
		}
	}
}
