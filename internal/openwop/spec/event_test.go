package spec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/receipts"
)

var (
	submitted = draft(runA, receipts.Submitted, receipts.Payload{Family: "chores"})
	started   = draft(runA, receipts.AttemptStarted, receipts.Payload{Attempt: 1})
	failure   = receipts.Failure{Type: "http.refused", Code: "422", Message: "account closed"}
)

// short writes events as "type payload" for comparison.
func short(t testing.TB, all []spec.Event) string {
	t.Helper()
	var out []string
	for _, e := range all {
		text, err := json.Marshal(e.Payload)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Type+" "+strings.ReplaceAll(string(text), runA.String(), "A"))
	}
	return strings.Join(out, "; ")
}

func TestEachKindOfReceiptGivesItsEventsOfTheLog(t *testing.T) {
	t.Parallel()
	missing := receipts.KnownSubtypes()
	dead := receipts.Payload{Attempt: 1, Attempts: 3, AttemptClass: "not_executed", ReasonCode: "retry_exhausted", Reason: "account closed", Error: failure, DeadLetteredAt: began}
	for subtype, c := range map[receipts.Subtype]struct {
		payload receipts.Payload
		want    string
	}{
		receipts.Submitted:      {receipts.Payload{}, ""},
		receipts.Activated:      {receipts.Payload{}, ""},
		receipts.AttemptStarted: {receipts.Payload{Attempt: 2}, `node.started {"nodeId":"execute","typeId":"recourse.task","attempt":1}`},
		receipts.RetryScheduled: {receipts.Payload{Attempt: 1, AttemptClass: "unknown", Error: failure, NextRetryAt: began.Add(2*time.Second + 25*time.Millisecond)},
			`node.retried {"nodeId":"execute","attempt":1,"delayMs":25,"lastError":{"code":"http.refused","message":"account closed"}}`},
		receipts.AttemptInterrupted: {receipts.Payload{Attempt: 1}, `node.retried {"nodeId":"execute","attempt":1,"delayMs":0}`},
		receipts.AttemptSucceeded: {receipts.Payload{Attempt: 1, Moved: 5, Reference: "pay_1"},
			`node.completed {"nodeId":"execute","outputs":{"moved":5,"reference":"pay_1"},"durationMs":1000}; run.completed {"outputs":{"moved":5,"reference":"pay_1"}}`},
		receipts.DeadLettered: {dead, `node.failed {"nodeId":"execute","error":{"code":"http.refused","message":"account closed"},"attempts":3}; ` +
			`run.dead_lettered {"runId":"A","nodeId":"execute","reason":"retry_exhausted: http.refused","attempts":3}; ` +
			`run.failed {"error":{"code":"retry_exhausted","message":"retry_exhausted: http.refused"},"failedNodeId":"execute"}`},
		receipts.Discarded: {receipts.Payload{Attempt: 1, Attempts: 1, AttemptClass: "not_executed", ReasonCode: "final"},
			`node.failed {"nodeId":"execute","error":{"code":"node_execution_failed","message":"node_execution_failed"},"attempts":1}; ` +
				`run.failed {"error":{"code":"final","message":"final"},"failedNodeId":"execute"}`},
		receipts.Cancelled:          {receipts.Payload{Reason: "sent in error"}, `run.cancelled {"reason":"sent in error","cancelledBy":"worker:1"}`},
		receipts.AnsweredLate:       {receipts.Payload{Attempt: 1, AttemptClass: "executed", Moved: 5}, `recourse.run.answered_late {"nodeId":"execute","attempt":0,"outcomeClass":"executed","outputs":{"moved":5}}`},
		receipts.Contradicted:       {receipts.Payload{AttemptClass: "executed", Moved: 400, Recorded: 1000, Reference: "pay_B"}, `recourse.settlement.contradicted {"outcomeClass":"executed","recorded":1000,"outputs":{"moved":400,"reference":"pay_B"}}`},
		receipts.ConservationBreach: {receipts.Payload{Excess: 7}, `recourse.escrow.breached {"excess":7}`},
		receipts.Reconciled:         {receipts.Payload{Finding: "executed", Ended: true}, `run.completed {}`},

		// They tell of the run's letter, of its case or of settings. None of them is in the log of a run.
		receipts.ManualRetryRequested: {receipts.Payload{NewRun: runB}, ""}, receipts.CancelRequested: {receipts.Payload{Reason: "why"}, ""},
		receipts.Superseded: {receipts.Payload{}, ""}, receipts.ReservationFreed: {receipts.Payload{Freed: 1}, ""}, receipts.Returned: {receipts.Payload{Returned: 1}, ""}, receipts.Replayed: {receipts.Payload{NewRun: runB}, ""},
		receipts.RetentionExpired: {receipts.Payload{}, ""}, receipts.Purged: {receipts.Payload{}, ""}, receipts.HoldPlaced: {receipts.Payload{}, ""}, receipts.HoldReleased: {receipts.Payload{}, ""},
		receipts.Marked: {receipts.Payload{}, ""}, receipts.RetentionEnding: {receipts.Payload{ExpiresAt: began}, ""}, receipts.Refused: {receipts.Payload{}, ""},
		receipts.PolicyChanged: {receipts.Payload{}, ""}, receipts.BreakerOpened: {receipts.Payload{}, ""}, receipts.BreakerReleased: {receipts.Payload{}, ""},
		receipts.OutOfBandChangeDetected: {receipts.Payload{}, ""}, receipts.KeyCreated: {receipts.Payload{}, ""}, receipts.KeyRevoked: {receipts.Payload{}, ""}, receipts.AccessRefused: {receipts.Payload{}, ""},
		receipts.BulkChanged: {receipts.Payload{BreakGlass: "INC-1"}, ""}, receipts.RuleChanged: {receipts.Payload{}, ""}, receipts.DeadLettersRebuilt: {receipts.Payload{}, ""},
		receipts.LettersPruned: {receipts.Payload{}, ""}, receipts.PeopleChanged: {receipts.Payload{}, ""}, receipts.WebhookChanged: {receipts.Payload{AskedFor: "pause"}, ""},
	} {
		l := logOf(t, chain(t, started, draft(runB, receipts.AttemptStarted, receipts.Payload{Attempt: 1}), draft(runA, subtype, c.payload)))
		want := `run.started {"workflowId":"chores","transport":"rest"}; node.started {"nodeId":"execute","typeId":"recourse.task","attempt":0}`
		if c.want != "" {
			want += "; " + c.want
		}
		// chain puts two seconds between the start and the receipt, the run's own start one before.
		if got := strings.ReplaceAll(short(t, l.Events), `"durationMs":2000`, `"durationMs":1000`); got != want {
			t.Errorf("%s:\n got %s\nwant %s", subtype, got, want)
		}
		missing = slices.DeleteFunc(missing, func(s receipts.Subtype) bool { return s == subtype })
	}
	if len(missing) > 0 {
		t.Errorf("no row for %v", missing)
	}
}

func TestARunThatDiesBetweenAttemptsHasNoFailedNode(t *testing.T) {
	t.Parallel()
	l := logOf(t, chain(t, submitted, draft(runA, receipts.DeadLettered, receipts.Payload{ReasonCode: "poison_pill", DeadLetteredAt: began})))
	want := `run.dead_lettered {"runId":"A","reason":"poison_pill","attempts":1}; run.failed {"error":{"code":"poison_pill","message":"poison_pill"}}`
	if got := short(t, l.Events); got != want {
		t.Errorf("got %s", got)
	}
}

// Receipts come in any order that a case can have, and in pages of any size.
func TestALogOnlyGrowsAndEndsOnce(t *testing.T) {
	t.Parallel()
	kinds := receipts.KnownSubtypes()
	rapid.Check(t, func(r *rapid.T) {
		var drafts []receipts.Draft
		for range rapid.IntRange(1, 20).Draw(r, "receipts") {
			run := rapid.SampledFrom([]receipts.RunID{runA, runB}).Draw(r, "run")
			drafts = append(drafts, draft(run, rapid.SampledFrom(kinds).Draw(r, "subtype"), receipts.Payload{
				Attempt: rapid.IntRange(1, 4).Draw(r, "attempt"), Ended: rapid.Bool().Draw(r, "ended"),
				AttemptClass: rapid.SampledFrom([]string{"", "not_executed"}).Draw(r, "class"), ReasonCode: "retry_exhausted",
			}))
		}
		rs := chain(t, drafts...)
		whole := logOf(t, rs)
		l := &spec.Log{Workflow: task, Run: runA}
		for len(rs) > 0 {
			n := rapid.IntRange(1, len(rs)).Draw(r, "page")
			before := slices.Clone(l.Events)
			if err := l.Add(rs[:n]); err != nil {
				r.Fatal(err)
			}
			if short(t, l.Events[:len(before)]) != short(t, before) {
				r.Fatal("an event changed its place")
			}
			rs = rs[n:]
		}
		if short(t, l.Events) != short(t, whole.Events) {
			r.Fatalf("by pages %s, at once %s", short(t, l.Events), short(t, whole.Events))
		}
		dead := -1
		for i, e := range l.Events {
			if e.Sequence != i || e.Run != runA.String() {
				r.Fatalf("event %d: %+v", i, e)
			}
			if e.Ends() != (i == len(l.Events)-1 && l.Ended()) {
				r.Fatalf("event %d of %d ends the log: %s", i, len(l.Events), e.Type)
			}
			if e.Type == spec.RunDeadLettered {
				dead = i
			}
		}
		if dead >= 0 && (dead != len(l.Events)-2 || l.Events[dead+1].Type != spec.RunFailed) {
			r.Fatalf("run.dead_lettered is not just before run.failed: %s", short(t, l.Events))
		}
	})
}

func TestEventsAfterASequence(t *testing.T) {
	t.Parallel()
	l := logOf(t, chain(t, submitted, started, draft(runA, receipts.AttemptSucceeded, receipts.Payload{Attempt: 1})))
	for after, want := range map[int]string{-1: "0 1 2 3", 0: "1 2 3", 2: "3", 3: "", 9: ""} {
		var got []string
		for _, e := range l.After(after) {
			got = append(got, fmt.Sprint(e.Sequence))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("after %d: %v, want %s", after, got, want)
		}
	}
}

// The event as RFC 0053 has it, with no member more.
func TestTheEnvelopeOfADeadLetter(t *testing.T) {
	t.Parallel()
	l := logOf(t, chain(t, submitted, started, draft(runA, receipts.DeadLettered, receipts.Payload{Attempt: 1, Attempts: 1, AttemptClass: "not_executed", ReasonCode: "retry_exhausted", DeadLetteredAt: began})))
	text, err := json.Marshal(l.Events[3])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"eventId":"` + caseA.String() + `.3.1","runId":"` + runA.String() + `","nodeId":"execute","type":"run.dead_lettered",` +
		`"payload":{"runId":"` + runA.String() + `","nodeId":"execute","reason":"retry_exhausted","attempts":1},"timestamp":"2026-11-21T10:00:02Z","sequence":3}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
