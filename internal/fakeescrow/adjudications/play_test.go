package main

import (
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
	"github.com/recourse-dev/recourse/settlement"
)

// attempts is the budget that the kinds assume.
const attempts = 3

// share is the part of the amount that a kind moves within the budget.
func share(kind string, amount int64) int64 {
	switch kind {
	case "retryable", "refused", "hang", "lost":
		return 0
	case "partial":
		return amount - amount/2
	}
	return amount
}

func TestOrdinaryLinesPlayAsTheirKindSays(t *testing.T) {
	t.Parallel()
	s, err := fakeescrow.Start(fakeescrow.Config{Hang: time.Millisecond, Late: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := escrowhttp.New(escrowhttp.Config{BaseURL: s.URL(), KeyLifetime: escrow.Forever, InFlight: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	lines := ordinaryLines()
	calls := make([]escrow.Call, len(lines))
	for i, l := range lines {
		calls[i] = escrow.Call{
			OperationKey: sha256.Sum256([]byte(l.TransactionReceiptID)),
			Request:      request(t, l),
			Amount:       settlement.Money{Minor: l.Amount.Minor, Currency: l.Amount.Currency},
		}
		for range attempts {
			if a := e.Execute(t.Context(), calls[i]); a.Class == escrow.Executed || !a.Retry {
				break
			}
		}
	}
	s.Repair() // lookups of dark keys answer only after it
	for i, l := range lines {
		if a := e.Lookup(t.Context(), calls[i]); a.Moved != share(l.kind, l.Amount.Minor) {
			t.Errorf("%s moved %d of %d", l.kind, a.Moved, l.Amount.Minor)
		}
	}
	if n := s.DoubleEffects(); n != 0 {
		t.Errorf("%d double effects", n)
	}
}

// request returns the body that Recourse sends for a line.
func request(t *testing.T, l line) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"adjudication_id": l.AdjudicationID, "amount": l.Amount, "escrow_reference": l.EscrowReference,
		"generation": max(l.Generation, 1), "held": l.Held, "outcome": l.Outcome,
		"payload":               map[string]any{"simulate": l.Simulate},
		"submission_receipt_id": l.SubmissionReceiptID, "tenant": l.Tenant,
		"transaction_receipt_id": l.TransactionReceiptID,
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
