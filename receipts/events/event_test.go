package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

var (
	testCase = receipts.CaseID(uuid.MustParse("01934b2e-7c00-7abc-8def-0123456789ab"))
	runA     = receipts.RunID(uuid.MustParse("01934b2e-7c00-7000-8000-00000000000a"))
	runB     = receipts.RunID(uuid.MustParse("01934b2e-7c00-7000-8000-00000000000b"))
	testAt   = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
)

func oneReceipt(t testing.TB, d receipts.Draft) receipts.Receipt {
	t.Helper()
	d.Actor, d.At = "worker:1", testAt
	rs, _, err := receipts.Chain(testCase, "acme", receipts.Genesis(testCase), d)
	if err != nil {
		t.Fatal(err)
	}
	return rs[0]
}

func TestEachReceiptGivesItsEventsInOrder(t *testing.T) {
	t.Parallel()
	failure := receipts.Failure{Type: "http.refused", Code: "422", Message: "account closed"}
	for _, c := range []struct {
		subtype receipts.Subtype
		payload receipts.Payload
		want    string // type and data of each
	}{
		{receipts.Submitted, receipts.Payload{RetryKey: "txr_1:release", TransactionReceiptID: "txr_1", Outcome: "release", Generation: 1, Amount: 5, Currency: "EUR"},
			`run.created {"runId":"A","transactionReceiptId":"txr_1","retryKey":"txr_1:release","outcome":"release","generation":1,"amount":5,"currency":"EUR"}`},
		{receipts.AttemptStarted, receipts.Payload{Attempt: 1}, `run.started {"runId":"A"}; node.started {"runId":"A","nodeId":"execute","attempt":1}`},
		{receipts.AttemptStarted, receipts.Payload{Attempt: 2}, `node.started {"runId":"A","nodeId":"execute","attempt":2}`},
		{receipts.RetryScheduled, receipts.Payload{Attempt: 1, AttemptClass: "unknown", Error: failure},
			`node.retried {"runId":"A","nodeId":"execute","attempt":1,"error":{"code":"http.refused","message":"account closed"},"outcomeClass":"unknown"}`},
		{receipts.AttemptInterrupted, receipts.Payload{Attempt: 2}, `node.retried {"runId":"A","nodeId":"execute","attempt":2}`},
		{receipts.AttemptSucceeded, receipts.Payload{Attempt: 1, Moved: 5, Settlement: &receipts.SettlementSnapshot{ProgressionStatus: "settled"}},
			`node.completed {"runId":"A","nodeId":"execute","attempt":1,"moved":5}; run.completed {"runId":"A","settlementStatus":"settled"}`},
		{receipts.DeadLettered, receipts.Payload{Attempt: 3, Attempts: 3, AttemptClass: "not_executed", ReasonCode: "retry_exhausted", Reason: "account closed", Error: failure},
			`node.failed {"runId":"A","nodeId":"execute","attempts":3,"error":{"code":"http.refused","message":"account closed"}}; ` +
				`run.dead_lettered {"runId":"A","nodeId":"execute","attempts":3,"reason":"retry_exhausted: http.refused"}; ` +
				`run.failed {"runId":"A","error":{"code":"retry_exhausted","message":"retry_exhausted: http.refused"},"failedNodeId":"execute"}`},
		{receipts.DeadLettered, receipts.Payload{Attempts: 1, ReasonCode: "outcome_unknown"},
			`run.dead_lettered {"runId":"A","attempts":1,"reason":"outcome_unknown"}; run.failed {"runId":"A","error":{"code":"outcome_unknown","message":"outcome_unknown"}}`},
		{receipts.Discarded, receipts.Payload{Attempt: 3, Attempts: 3, AttemptClass: "not_executed", ReasonCode: "final", Error: failure},
			`node.failed {"runId":"A","nodeId":"execute","attempts":3,"error":{"code":"http.refused","message":"account closed"}}; ` +
				`run.failed {"runId":"A","error":{"code":"final","message":"final: http.refused"},"failedNodeId":"execute"}`},
		{receipts.Discarded, receipts.Payload{ReasonCode: "expired"}, `run.failed {"runId":"A","error":{"code":"expired","message":"expired"}}`},
		{receipts.Activated, receipts.Payload{}, ``},
		{receipts.Cancelled, receipts.Payload{Reason: "sent in error"}, `run.cancelled {"runId":"A","reason":"sent in error","cancelledBy":"worker:1"}`},
		{receipts.AnsweredLate, receipts.Payload{Attempt: 1, AttemptClass: "executed", Moved: 5}, `run.answered_late {"runId":"A","nodeId":"execute","attempt":1,"outcomeClass":"executed","moved":5}`},
		{receipts.Reconciled, receipts.Payload{Finding: "executed", Moved: 5}, `run.reconciled {"runId":"A","moved":5,"finding":"executed"}`},
		{receipts.Reconciled, receipts.Payload{Finding: "executed", Ended: true}, `run.reconciled {"runId":"A","finding":"executed"}; run.completed {"runId":"A"}`},
		{receipts.ManualRetryRequested, receipts.Payload{NewRun: runB}, `run.forked {"runId":"A","newRunId":"B"}`},
		{receipts.Superseded, receipts.Payload{}, `run.superseded {"runId":"A"}`},
		{receipts.Purged, receipts.Payload{Reason: "asked by the tenant"}, `run.purged {"runId":"A","reason":"asked by the tenant"}`},
		{receipts.RetentionExpired, receipts.Payload{}, `run.purged {"runId":"A"}`},
		{receipts.RetentionEnding, receipts.Payload{ExpiresAt: testAt}, `letter.expiring {"runId":"A","expiresAt":"2026-11-21T10:00:00Z"}`},
		{receipts.Contradicted, receipts.Payload{AttemptClass: "not_executed", Recorded: 1000}, `settlement.contradicted {"runId":"A","outcomeClass":"not_executed","recorded":1000}`},
		{receipts.ConservationBreach, receipts.Payload{Excess: 7}, `escrow.breached {"runId":"A","excess":7}`},
		{receipts.ReservationFreed, receipts.Payload{Freed: 7, Reason: "withdrawn", FindingReference: "stmt-7"}, `run.reservation_freed {"runId":"A","reason":"withdrawn","reference":"stmt-7","freed":7}`},
		{receipts.Returned, receipts.Payload{Returned: 7, Outcome: "release", Reason: "account closed", Reference: "R-7"}, `settlement.returned {"runId":"A","reason":"account closed","outcome":"release","reference":"R-7","returned":7}`},
		{receipts.BulkChanged, receipts.Payload{Bulk: "p1", AskedFor: "finding", Reason: "nobody else awake", BreakGlass: "INC-7"},
			`plan.break_glass {"runId":"A","reason":"nobody else awake","planId":"p1","action":"finding","actor":"worker:1","incident":"INC-7"}`},
		{receipts.BulkChanged, receipts.Payload{Bulk: "p1", AskedFor: "finding", Reason: "mended"}, ``}, {receipts.PeopleChanged, receipts.Payload{People: 1}, ``},
		{receipts.WebhookChanged, receipts.Payload{Reference: "w1", AskedFor: "pause", Reason: "no answer for 3 days"}, `webhook.paused {"runId":"A","reason":"no answer for 3 days","actor":"worker:1","webhookId":"w1"}`},
		{receipts.WebhookChanged, receipts.Payload{Reference: "w1", AskedFor: "rotate"}, ``},
		{receipts.Refused, receipts.Payload{AskedFor: "cancel"}, ``},
		{receipts.Replayed, receipts.Payload{}, ``}, {receipts.HoldPlaced, receipts.Payload{}, ``}, {receipts.HoldReleased, receipts.Payload{}, ``}, {receipts.Marked, receipts.Payload{}, ``}, {receipts.PolicyChanged, receipts.Payload{}, ``},
		{receipts.BreakerOpened, receipts.Payload{}, ``}, {receipts.BreakerReleased, receipts.Payload{}, ``}, {receipts.OutOfBandChangeDetected, receipts.Payload{}, ``},
	} {
		r := oneReceipt(t, receipts.Draft{Run: runA, Subtype: c.subtype, Payload: c.payload})
		found, err := events.Of(r)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, e := range found {
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
	ends := []events.Type{events.RunCompleted, events.RunFailed, events.RunCancelled}
	rapid.Check(t, func(t *rapid.T) {
		d := receipts.Draft{Subtype: rapid.SampledFrom(receipts.KnownSubtypes()).Draw(t, "subtype"), Run: runA, Actor: "worker:1", At: testAt, Payload: drawPayload(t)}
		rs, _, err := receipts.Chain(testCase, "acme", receipts.Genesis(testCase), d)
		if err != nil {
			t.Fatal(err)
		}
		found, err := events.Of(rs[0])
		if err != nil {
			t.Fatal(err)
		}
		letters, ended := 0, 0
		for i, e := range found {
			if e.Type == events.RunDeadLettered {
				letters++
			}
			if slices.Contains(ends, e.Type) {
				ended++
				if i != len(found)-1 {
					t.Errorf("%s is not the last of %v", e.Type, found)
				}
			}
		}
		if dead := d.Subtype == receipts.DeadLettered; dead != (letters == 1) || letters > 1 || ended > 1 || len(found) > 3 {
			t.Errorf("%s: %d letters, %d ends, %d events", d.Subtype, letters, ended, len(found))
		}
	})
}

// drawPayload draws the members that events depend on.
func drawPayload(t *rapid.T) receipts.Payload {
	text := rapid.SampledFrom([]string{"", "x"})
	return receipts.Payload{
		Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"), AttemptClass: text.Draw(t, "class"), ReasonCode: text.Draw(t, "reason"), BreakGlass: text.Draw(t, "incident"),
		Ended: rapid.Bool().Draw(t, "ended"), Error: receipts.Failure{Type: text.Draw(t, "type")},
	}
}

func TestAReceiptThatCantBeReadGivesNoEvents(t *testing.T) {
	t.Parallel()
	r := oneReceipt(t, receipts.Draft{Run: runA, Subtype: receipts.Superseded})
	r.Body = r.Body[1:]
	if found, err := events.Of(r); err == nil || found != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// A receipt of a newer program gives the events that this program knows.
func TestAReceiptOfANewerVersionGivesItsEvents(t *testing.T) {
	t.Parallel()
	r := oneReceipt(t, receipts.Draft{Run: runA, Subtype: receipts.AttemptStarted, Payload: receipts.Payload{Attempt: 1}})
	r.Body = bytes.Replace(r.Body, []byte(`"payload":{`), []byte(`"payload":{"a_new_member":[1],`), 1)
	if _, err := r.Payload(); err == nil {
		t.Error("it was read as one of this version")
	}
	found, err := events.Of(r)
	if err != nil || len(found) != 2 || found[1].Data.Attempt != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}
