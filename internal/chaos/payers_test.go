package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

const payer = "service:p"

// An answer for another principal's order is refused, and each lie that the server can know is on record.
func TestVerifyComparesWhatPayersToldWithTheReceipts(t *testing.T) {
	t.Parallel()
	run := background.RunID{1}
	receipt := func(subtype receipts.Subtype, p receipts.Payload) []parsedReceipt {
		return []parsedReceipt{{receipts.Receipt{Run: run, Subtype: subtype, Actor: payer}, p}}
	}
	reported := func(change func(*remote.Report)) remote.Report {
		reported := remote.Report{Principal: payer, Order: run.String(), Key: "key", Attempt: 1, Class: remote.NotExecuted, Status: http.StatusConflict}
		change(&reported)
		return reported
	}
	notHolder := string(refusal.GateNotTheHolder)
	ofOther := reported(func(t *remote.Report) { t.OfOther, t.Rule = true, notHolder })
	denies := reported(func(t *remote.Report) { t.Denies = true })
	for what, c := range map[string]struct {
		reported remote.Report
		have     []parsedReceipt
		want     string // "" for nothing broken
	}{
		"refused":                 {ofOther, receipt(receipts.Refused, receipts.Payload{RefusedBy: notHolder}), ""},
		"refused, not on record":  {ofOther, receipt(receipts.Refused, receipts.Payload{RefusedBy: "another"}), "was refused as it answered for order"},
		"accepted":                {reported(func(t *remote.Report) { t.OfOther, t.Status = true, http.StatusOK }), nil, "which another principal was given, and got 200"},
		"a conflict":              {reported(func(t *remote.Report) { t.OfOther = true }), nil, "which another principal was given, and got 409"},
		"too many were refused":   {reported(func(t *remote.Report) { t.OfOther, t.Status = true, http.StatusTooManyRequests }), nil, ""},
		"nobody answered":         {reported(func(t *remote.Report) { t.OfOther, t.Status = true, 0 }), nil, ""},
		"the holder is refused":   {reported(func(t *remote.Report) { t.Rule = notHolder }), nil, "which it was given"},
		"denied":                  {denies, receipt(receipts.Contradicted, receipts.Payload{AttemptClass: remote.NotExecuted}), ""},
		"denied, not on record":   {denies, receipt(receipts.AnsweredLate, receipts.Payload{AttemptClass: remote.NotExecuted}), "denied its payment"},
		"an honest late answer":   {reported(func(*remote.Report) {}), nil, ""},
		"denied, nobody answered": {reported(func(t *remote.Report) { t.Denies, t.Status = true, 0 }), nil, ""},
	} {
		v := &verification{Lies: map[string]int{}}
		v.checkReports([]remote.Report{c.reported}, map[transaction]*caseTrail{{"t", "x"}: {receipts: c.have}})
		if got := strings.Join(v.Broken, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", what, got, c.want)
		}
	}
}

// The word of a liar counts as a payment where it is on record, and by what it exceeds the payment. The word of an
// honest worker does not.
func TestVerifyForgivesOnlyWhatALiarInvented(t *testing.T) {
	t.Parallel()
	run := background.RunID{1}
	lie := remote.Report{Principal: payer, Order: run.String(), Key: "key", False: true, Class: remote.Executed, Moved: 1000, Reference: "r"}
	honest, unrecorded, other := lie, lie, lie
	honest.False, unrecorded.Reference, other.OfOther = false, "s", true
	cases := map[transaction]*caseTrail{{"t", "x"}: {Case: casestatus.Case{Escrow: "e"}, receipts: []parsedReceipt{
		{receipts.Receipt{Run: run, Subtype: receipts.Submitted}, receipts.Payload{OperationKey: "key", Amount: 1000, Currency: "EUR", Outcome: string(settlement.Release), Generation: 1}},
		{receipts.Receipt{Run: run, Subtype: receipts.AttemptSucceeded}, receipts.Payload{AttemptClass: remote.Executed, Moved: 1000, Reference: "r"}},
	}}}
	for what, c := range map[string]struct {
		reported remote.Report
		paid     int64
		want     int64
	}{
		"nothing was paid": {lie, 0, 1000}, "a half was paid": {lie, 500, 500}, "all was paid": {lie, 1000, 0},
		"an honest worker": {honest, 0, 0}, "not on record": {unrecorded, 0, 0}, "of another's order": {other, 0, 0},
	} {
		var got int64
		for _, e := range inventedPayments([]remote.Report{c.reported}, []fakeescrow.Effect{{OperationKey: "key", Moved: settlement.Money{Minor: c.paid, Currency: "EUR"}}}, cases) {
			if got += e.Moved.Minor; e.EscrowReference != "e" || e.TransactionReceiptID != "x" || e.Outcome != settlement.Release {
				t.Errorf("%s: %+v", what, e)
			}
		}
		if got != c.want {
			t.Errorf("%s: %d were invented, want %d", what, got, c.want)
		}
	}
}
