package receipts_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

var (
	testCase = mustCase("01934b2e-7c00-7abc-8def-0123456789ab")
	runA     = mustRun("01934b2e-7c00-7000-8000-00000000000a")
	runB     = mustRun("01934b2e-7c00-7000-8000-00000000000b")
	testAt   = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("CET", 3600))
)

func mustCase(s string) receipts.CaseID {
	c, err := receipts.ParseCaseID(s)
	if err != nil {
		panic(err)
	}
	return c
}

func mustRun(s string) receipts.RunID {
	r, err := receipts.ParseRunID(s)
	if err != nil {
		panic(err)
	}
	return r
}

// numberedCase returns cases that sort by n.
func numberedCase(n int) receipts.CaseID {
	return mustCase(fmt.Sprintf("01934b2e-7c00-7abc-8def-%012x", n))
}

// sampleDrafts is a case in which every part of a payload is used: a death, its fork, and a late success.
func sampleDrafts() []receipts.Draft {
	after := func(d time.Duration) time.Time { return testAt.Add(d) }
	return []receipts.Draft{
		{Run: runA, Subtype: receipts.Submitted, Actor: "escrow-desk", At: testAt, Payload: receipts.Payload{
			TransactionReceiptID: "txr_1", Outcome: "release", Generation: 1, Amount: 125_00, Held: 125_00,
			Currency: "EUR", RetryKey: "txr_1:release", Family: "post_adjudication", Queue: "settlement:3",
			Settlement: &receipts.SettlementSnapshot{Asked: 125_00, Generation: 1, Reserved: 125_00,
				DisputeLifecycleStatus: "hold-active", EscrowAdjudication: "release",
				ProgressionReasonCode: "approve", ProgressionStatus: "approved-for-settlement"},
		}},
		{Run: runA, Subtype: receipts.AttemptStarted, Actor: "worker-1", At: after(time.Second), Payload: receipts.Payload{Attempt: 1}},
		{Run: runA, Subtype: receipts.RetryScheduled, Actor: "worker-1", At: after(2 * time.Second), Payload: receipts.Payload{
			Attempt: 1, BudgetSpent: 1, OutcomeClass: receipts.ClassUnknown, AttemptClass: receipts.ClassUnknown, UnknownOpen: 1,
			NextRetryAt: after(3 * time.Second), DurationUS: 1_000_000,
			Error: receipts.Failure{Type: "timeout", Message: "no answer \"at all\"\u2028— \U0001F4B8", Code: "deadline"},
		}},
		{Run: runA, Subtype: receipts.AttemptStarted, Actor: "worker-2", At: after(3 * time.Second), Payload: receipts.Payload{Attempt: 2}},
		{Run: runA, Subtype: receipts.DeadLettered, Actor: "worker-2", At: after(4 * time.Second), Payload: receipts.Payload{
			Attempt: 2, Attempts: 2, BudgetSpent: 2, OutcomeClass: receipts.ClassUnknown, AttemptClass: receipts.ClassNotExecuted,
			UnknownOpen: 1, DeadLetteredAt: after(4 * time.Second), ReasonCode: "budget_spent",
		}},
		{Run: runA, Subtype: receipts.ManualRetryRequested, Actor: "ana", At: after(time.Hour),
			Payload: receipts.Payload{NewRun: runB, Reason: "service mended"}},
		{Run: runB, Subtype: receipts.Submitted, Actor: "ana", At: after(time.Hour),
			Payload: receipts.Payload{ParentRun: runA, RetryKey: "txr_1:release", Family: "post_adjudication"}},
		{Run: runB, Subtype: receipts.Reconciled, Actor: "lookup", At: after(2 * time.Hour),
			Payload: receipts.Payload{Finding: receipts.ClassExecuted, OutcomeClass: receipts.ClassExecuted, FindingReference: "esc-77"}},
	}
}

// chained chains drafts from the beginning of a case.
func chained(t testing.TB, c receipts.CaseID, drafts ...receipts.Draft) ([]receipts.Receipt, receipts.Head) {
	t.Helper()
	rs, head, err := receipts.Chain(c, "acme", receipts.Genesis(c), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return rs, head
}

// each streams receipts without an error.
func each(rs ...receipts.Receipt) iter.Seq2[receipts.Receipt, error] {
	return func(yield func(receipts.Receipt, error) bool) {
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
