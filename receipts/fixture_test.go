package receipts

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"
)

var (
	testCase = mustCase("01934b2e-7c00-7abc-8def-0123456789ab")
	runA     = mustRun("01934b2e-7c00-7000-8000-00000000000a")
	runB     = mustRun("01934b2e-7c00-7000-8000-00000000000b")
	testAt   = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("CET", 3600))
)

func mustCase(s string) CaseID {
	c, err := ParseCaseID(s)
	if err != nil {
		panic(err)
	}
	return c
}

func mustRun(s string) RunID {
	r, err := ParseRunID(s)
	if err != nil {
		panic(err)
	}
	return r
}

// numberedCase returns cases that sort by n.
func numberedCase(n int) CaseID {
	return mustCase(fmt.Sprintf("01934b2e-7c00-7abc-8def-%012x", n))
}

// sampleDrafts is a case in which every part of a payload is used: a death, its fork, and a late success.
func sampleDrafts() []Draft {
	after := func(d time.Duration) time.Time { return testAt.Add(d) }
	return []Draft{
		{Run: runA, Subtype: Submitted, Actor: "escrow-desk", At: testAt, Payload: Payload{
			TransactionReceiptID: "txr_1", Outcome: "release", Generation: 1, Amount: 125_00, Held: 125_00,
			Currency: "EUR", RetryKey: "txr_1:release", Family: "post_adjudication", Queue: "settlement:3",
			Settlement: &SettlementSnapshot{Asked: 125_00, Generation: 1, Reserved: 125_00,
				DisputeLifecycleStatus: "hold-active", EscrowAdjudication: "release",
				ProgressionReasonCode: "approve", ProgressionStatus: "approved-for-settlement"},
		}},
		{Run: runA, Subtype: AttemptStarted, Actor: "worker-1", At: after(time.Second), Payload: Payload{Attempt: 1}},
		{Run: runA, Subtype: RetryScheduled, Actor: "worker-1", At: after(2 * time.Second), Payload: Payload{
			Attempt: 1, BudgetSpent: 1, OutcomeClass: ClassUnknown, AttemptClass: ClassUnknown, UnknownOpen: 1,
			NextRetryAt: after(3 * time.Second), DurationUS: 1_000_000,
			Error: Failure{Type: "timeout", Message: "no answer \"at all\"\u2028— \U0001F4B8", Code: "deadline"},
		}},
		{Run: runA, Subtype: AttemptStarted, Actor: "worker-2", At: after(3 * time.Second), Payload: Payload{Attempt: 2}},
		{Run: runA, Subtype: DeadLettered, Actor: "worker-2", At: after(4 * time.Second), Payload: Payload{
			Attempt: 2, Attempts: 2, BudgetSpent: 2, OutcomeClass: ClassUnknown, AttemptClass: ClassNotExecuted,
			UnknownOpen: 1, DeadLetteredAt: after(4 * time.Second), ReasonCode: "budget_spent",
		}},
		{Run: runA, Subtype: ManualRetryRequested, Actor: "ana", At: after(time.Hour),
			Payload: Payload{NewRun: runB, Reason: "service mended"}},
		{Run: runB, Subtype: Submitted, Actor: "ana", At: after(time.Hour),
			Payload: Payload{ParentRun: runA, RetryKey: "txr_1:release", Family: "post_adjudication"}},
		{Run: runB, Subtype: Reconciled, Actor: "lookup", At: after(2 * time.Hour),
			Payload: Payload{Finding: ClassExecuted, OutcomeClass: ClassExecuted, FindingReference: "esc-77"}},
	}
}

// chained chains drafts from the beginning of a case.
func chained(t testing.TB, c CaseID, drafts ...Draft) ([]Receipt, Head) {
	t.Helper()
	rs, head, err := Chain(c, "acme", Genesis(c), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return rs, head
}

// each streams receipts without an error.
func each(rs ...Receipt) iter.Seq2[Receipt, error] {
	return func(yield func(Receipt, error) bool) {
		for _, r := range rs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Fatalf("error = %v, want one with %q", err, part)
	}
}
