package receipts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func oneReceipt(t testing.TB, d Draft) Receipt {
	t.Helper()
	d.Actor, d.At = "worker:1", time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	rs, _, err := Chain(testCase, "acme", Genesis(testCase), d)
	if err != nil {
		t.Fatal(err)
	}
	return rs[0]
}

func TestEachReceiptGivesItsEventsInOrder(t *testing.T) {
	t.Parallel()
	failure := Failure{Type: "http.refused", Code: "422", Message: "account closed"}
	for _, c := range []struct {
		subtype Subtype
		payload Payload
		want    string // type and data of each
	}{
		{Submitted, Payload{RetryKey: "txr_1:release", TransactionReceiptID: "txr_1", Outcome: "release", Generation: 1, Amount: 5, Currency: "EUR"},
			`run.created {"runId":"A","transactionReceiptId":"txr_1","retryKey":"txr_1:release","outcome":"release","generation":1,"amount":5,"currency":"EUR"}`},
		{AttemptStarted, Payload{Attempt: 1}, `run.started {"runId":"A"}; node.started {"runId":"A","nodeId":"execute","attempt":1}`},
		{AttemptStarted, Payload{Attempt: 2}, `node.started {"runId":"A","nodeId":"execute","attempt":2}`},
		{RetryScheduled, Payload{Attempt: 1, AttemptClass: "unknown", Error: failure},
			`node.retried {"runId":"A","nodeId":"execute","attempt":1,"error":{"code":"http.refused","message":"account closed"},"outcomeClass":"unknown"}`},
		{AttemptInterrupted, Payload{Attempt: 2}, `node.retried {"runId":"A","nodeId":"execute","attempt":2}`},
		{AttemptSucceeded, Payload{Attempt: 1, Moved: 5, Settlement: &SettlementSnapshot{ProgressionStatus: "settled"}},
			`node.completed {"runId":"A","nodeId":"execute","attempt":1,"moved":5}; run.completed {"runId":"A","settlementStatus":"settled"}`},
		{DeadLettered, Payload{Attempt: 3, Attempts: 3, AttemptClass: "not_executed", ReasonCode: "retry_exhausted", Reason: "account closed", Error: failure},
			`node.failed {"runId":"A","nodeId":"execute","attempts":3,"error":{"code":"http.refused","message":"account closed"}}; ` +
				`run.dead_lettered {"runId":"A","nodeId":"execute","attempts":3,"reason":"retry_exhausted: http.refused"}; ` +
				`run.failed {"runId":"A","error":{"code":"retry_exhausted","message":"retry_exhausted: http.refused"},"failedNodeId":"execute"}`},
		{DeadLettered, Payload{Attempts: 1, ReasonCode: "outcome_unknown"},
			`run.dead_lettered {"runId":"A","attempts":1,"reason":"outcome_unknown"}; run.failed {"runId":"A","error":{"code":"outcome_unknown","message":"outcome_unknown"}}`},
		{Cancelled, Payload{Reason: "sent in error"}, `run.cancelled {"runId":"A","reason":"sent in error","cancelledBy":"worker:1"}`},
		{AnsweredLate, Payload{Attempt: 1, AttemptClass: "executed", Moved: 5}, `run.answered_late {"runId":"A","nodeId":"execute","attempt":1,"outcomeClass":"executed","moved":5}`},
		{Reconciled, Payload{Finding: "executed", Moved: 5}, `run.reconciled {"runId":"A","moved":5,"finding":"executed"}`},
		{Reconciled, Payload{Finding: "executed", Ended: true}, `run.reconciled {"runId":"A","finding":"executed"}; run.completed {"runId":"A"}`},
		{ManualRetryRequested, Payload{NewRun: runB}, `run.forked {"runId":"A","newRunId":"B"}`},
		{Superseded, Payload{}, `run.superseded {"runId":"A"}`},
		{Purged, Payload{Reason: "asked by the tenant"}, `run.purged {"runId":"A","reason":"asked by the tenant"}`},
		{RetentionExpired, Payload{}, `run.purged {"runId":"A"}`},
		{RetentionEnding, Payload{ExpiresAt: at(9)}, `letter.expiring {"runId":"A","expiresAt":"2026-03-01T11:00:09Z"}`},
		{ConservationBreach, Payload{Excess: 7}, `escrow.breached {"runId":"A","excess":7}`},
		{ReservationFreed, Payload{Freed: 7, Reason: "withdrawn", FindingReference: "stmt-7"}, `run.reservation_freed {"runId":"A","reason":"withdrawn","reference":"stmt-7","freed":7}`},
		{BulkChanged, Payload{Bulk: "p1", AskedFor: "finding", Reason: "nobody else awake", BreakGlass: "INC-7"},
			`plan.break_glass {"runId":"A","reason":"nobody else awake","planId":"p1","action":"finding","actor":"worker:1","incident":"INC-7"}`},
		{BulkChanged, Payload{Bulk: "p1", AskedFor: "finding", Reason: "mended"}, ``}, {PeopleChanged, Payload{People: 1}, ``},
		{Refused, Payload{AskedFor: "cancel"}, ``},
		{Replayed, Payload{}, ``}, {HoldPlaced, Payload{}, ``}, {HoldReleased, Payload{}, ``}, {Marked, Payload{}, ``}, {PolicyChanged, Payload{}, ``},
		{BreakerOpened, Payload{}, ``}, {BreakerReleased, Payload{}, ``}, {OutOfBandChangeDetected, Payload{}, ``},
	} {
		r := oneReceipt(t, Draft{Run: runA, Subtype: c.subtype, Payload: c.payload})
		events, err := r.Events()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, e := range events {
			if e.ID != fmt.Sprintf("%s.%d", r.ID(), i) || e.Tenant != "acme" || e.Case != testCase || e.Run != runA || !e.At.Equal(r.At) {
				t.Errorf("%s: %+v", c.subtype, e)
			}
			data, err := json.Marshal(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Type)+" "+strings.NewReplacer(runA.String(), "A", runB.String(), "B").Replace(string(data)))
		}
		if all := strings.Join(got, "; "); all != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.subtype, all, c.want)
		}
	}
}

// Any receipt gives at most one dead letter event, at most one end event, which is
// the last, and at most three in all.
func TestEventsOfAnyReceiptKeepTheirPromises(t *testing.T) {
	t.Parallel()
	ends := []EventType{RunCompleted, RunFailed, RunCancelled}
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		rs, _, err := Chain(testCase, "acme", Genesis(testCase), d)
		if err != nil {
			t.Fatal(err)
		}
		events, err := rs[0].Events()
		if err != nil {
			t.Fatal(err)
		}
		letters, ended := 0, 0
		for i, e := range events {
			if e.Type == RunDeadLettered {
				letters++
			}
			if slices.Contains(ends, e.Type) {
				ended++
				if i != len(events)-1 {
					t.Errorf("%s is not the last of %v", e.Type, events)
				}
			}
		}
		if dead := d.Subtype == DeadLettered; dead != (letters == 1) || letters > 1 || ended > 1 || len(events) > 3 {
			t.Errorf("%s: %d letters, %d ends, %d events", d.Subtype, letters, ended, len(events))
		}
	})
}

func TestAReceiptThatCantBeReadGivesNoEvents(t *testing.T) {
	t.Parallel()
	r := oneReceipt(t, Draft{Run: runA, Subtype: Superseded})
	r.Body = r.Body[1:]
	if events, err := r.Events(); err == nil || events != nil {
		t.Errorf("%v, %v", events, err)
	}
}

// A receipt of a newer program gives the events that this program knows.
func TestAReceiptOfANewerVersionGivesItsEvents(t *testing.T) {
	t.Parallel()
	rs, _ := chained(t, testCase, draftOf(AttemptStarted, 1, Payload{Attempt: 1}))
	r := rs[0]
	r.Body = bytes.Replace(r.Body, []byte(`"payload":{`), []byte(`"payload":{"a_new_member":[1],`), 1)
	if _, err := r.Payload(); err == nil {
		t.Error("it was read as one of this version")
	}
	events, err := r.Events()
	if err != nil || len(events) != 2 || events[1].Data.Attempt != 1 {
		t.Errorf("%+v, %v", events, err)
	}
}
