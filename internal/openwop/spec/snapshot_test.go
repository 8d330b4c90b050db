package spec_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/receipts"
)

func TestASnapshotIsTheLogFolded(t *testing.T) {
	t.Parallel()
	dead := draft(runA, receipts.DeadLettered, receipts.Payload{Attempt: 1, Attempts: 1, AttemptClass: "not_executed", ReasonCode: "retry_exhausted", DeadLetteredAt: began})
	for name, c := range map[string]struct {
		drafts []receipts.Draft
		want   string // status and what else is set
	}{
		"waits":     {[]receipts.Draft{submitted}, `{"status":"pending"}`},
		"runs":      {[]receipts.Draft{submitted, started}, `{"status":"running","startedAt":"2026-11-21T10:00:01Z"}`},
		"completed": {[]receipts.Draft{submitted, started, draft(runA, receipts.AttemptSucceeded, receipts.Payload{Attempt: 1})}, `{"status":"completed","startedAt":"2026-11-21T10:00:01Z","completedAt":"2026-11-21T10:00:02Z"}`},
		"cancelled": {[]receipts.Draft{submitted, draft(runA, receipts.Cancelled, receipts.Payload{Reason: "why"})}, `{"status":"cancelled","completedAt":"2026-11-21T10:00:01Z"}`},
		"dead": {[]receipts.Draft{submitted, started, dead}, `{"status":"failed","startedAt":"2026-11-21T10:00:01Z","completedAt":"2026-11-21T10:00:02Z",` +
			`"error":{"code":"retry_exhausted","message":"retry_exhausted","details":{"attempts":1,"deadLettered":true}}}`},
		"dead and forked": {[]receipts.Draft{submitted, started, dead, draft(runA, receipts.ManualRetryRequested, receipts.Payload{NewRun: runB})}, `{"status":"failed","startedAt":"2026-11-21T10:00:01Z","completedAt":"2026-11-21T10:00:02Z",` +
			`"error":{"code":"retry_exhausted","message":"retry_exhausted","details":{"attempts":1,"deadLettered":true}}}`},
		"discarded": {[]receipts.Draft{submitted, started, draft(runA, receipts.Discarded, receipts.Payload{Attempt: 1, Attempts: 1, AttemptClass: "not_executed", ReasonCode: "final"})},
			`{"status":"failed","startedAt":"2026-11-21T10:00:01Z","completedAt":"2026-11-21T10:00:02Z","error":{"code":"final","message":"final","details":{"attempts":1,"deadLettered":false}}}`},
		"fork": {[]receipts.Draft{draft(runA, receipts.Submitted, receipts.Payload{ParentRun: runB})}, `{"status":"pending","sourceRunId":"` + runB.String() + `"}`},
	} {
		l := logOf(t, chain(t, c.drafts...))
		text, err := json.Marshal(l.Snapshot("acme", len(l.Events)))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if got["runId"] != runA.String() || got["workflowId"] != "chores" || got["owner"].(map[string]any)["tenant"] != "acme" {
			t.Errorf("%s: %s", name, text)
		}
		for _, always := range []string{"runId", "workflowId", "owner"} {
			delete(got, always)
		}
		want := map[string]any{}
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s:\n got %s\nwant %s", name, a, b)
		}
	}
}

// A run may have thousands of attempts, and a stream shows a snapshot after each: all of them cost less than the log
// itself, and are those that are made one by one.
func TestSnapshotsOfALongLogAreMadeOfEachOther(t *testing.T) {
	t.Parallel()
	drafts := []receipts.Draft{submitted}
	for i := range 10_000 {
		drafts = append(drafts, draft(runA, receipts.AttemptStarted, receipts.Payload{Attempt: i + 1}), draft(runA, receipts.RetryScheduled, receipts.Payload{Attempt: i + 1, AttemptClass: "not_executed"}))
	}
	linked := chain(t, append(drafts, draft(runA, receipts.DeadLettered, receipts.Payload{Attempt: 10_000, Attempts: 10_000, AttemptClass: "not_executed", ReasonCode: "retry_exhausted"}))...)
	begin := time.Now()
	l := logOf(t, linked)
	read := time.Since(begin)
	begin = time.Now()
	all := make([]spec.Snapshot, len(l.Events)+1)
	for fold, n := l.Fold("acme"), 0; n < len(all); n++ {
		all[n] = fold.After(n)
	}
	if folded := time.Since(begin); folded > read {
		t.Errorf("the snapshots of %d events took %s, and the log %s", len(l.Events), folded, read)
	}
	for _, n := range []int{0, 1, 2, len(l.Events) / 2, len(l.Events) - 2, len(l.Events) - 1, len(l.Events)} {
		if one := l.Snapshot("acme", n); !reflect.DeepEqual(one, all[n]) {
			t.Errorf("after %d events: %+v, not %+v", n, all[n], one)
		}
	}
}

func TestTheVariablesOfASettlementAreItsTerms(t *testing.T) {
	t.Parallel()
	l := logOf(t, chain(t, draft(runA, receipts.Submitted, receipts.Payload{TransactionReceiptID: "txr_1", Outcome: "release", Generation: 2, Amount: 5, Currency: "EUR", Target: "escrow"})))
	text, err := json.Marshal(l.Terms())
	if want := `{"amount":{"currency":"EUR","minor":5},"generation":2,"outcome":"release","target":"escrow","transaction_receipt_id":"txr_1"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	if other := logOf(t, chain(t, submitted)); other.Terms() != nil {
		t.Errorf("a task has terms: %v", other.Terms())
	}
	var none spec.Log
	if none.Terms() != nil {
		t.Error("an empty log has terms")
	}
}
