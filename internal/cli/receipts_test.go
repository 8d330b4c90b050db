package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
)

// The list of receipts and the status of the case show the amount of a breach.
func TestABreachSaysByHowMuch(t *testing.T) {
	t.Parallel()
	caseID := receipts.CaseID(uuid.New())
	rs, _, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID), receipts.Draft{
		Run: receipts.RunID(uuid.New()), Subtype: receipts.ConservationBreach, Actor: "worker:a", At: time.Now().UTC().Truncate(time.Microsecond),
		Payload: receipts.Payload{Attempt: 1, Excess: 9899, Moved: 9999},
	})
	if err != nil {
		t.Fatal(err)
	}
	var list, status bytes.Buffer
	if err := showReceipts(screen.New(&list), receiptColumns(false), "EUR", rs, false); err != nil || !strings.Contains(list.String(), "98.99 EUR paid beyond") {
		t.Errorf("%v\n%s", err, list.String())
	}
	answer := view.CaseAnswer{Case: casestatus.Case{Currency: "EUR", Held: 10000, Excess: 9899, Committed: 10099, Breached: 99}}
	if err := view.Case(screen.New(&status), answer); err != nil || !strings.Contains(status.String(), "98.99 EUR was paid beyond") || !strings.Contains(status.String(), "0.99 EUR more than it holds") {
		t.Errorf("%v\n%s", err, status.String())
	}
}

// The list of receipts shows what was refused and by which gate, and what superseded a run.
func TestARefusalSaysWhatWasRefused(t *testing.T) {
	t.Parallel()
	caseID, next := receipts.CaseID(uuid.New()), receipts.RunID(uuid.New())
	at := time.Now().UTC().Truncate(time.Microsecond)
	rs, _, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID),
		receipts.Draft{Subtype: receipts.Refused, Actor: "system:escrow", At: at, Payload: receipts.Payload{
			AskedFor: "submit", RefusedBy: "case_ended", Outcome: "refund", Amount: 12500, Currency: "EUR", Generation: 2, AdjudicationID: "adj_2"}},
		receipts.Draft{Run: receipts.RunID(uuid.New()), Subtype: receipts.Superseded, Actor: "system:escrow", At: at, Payload: receipts.Payload{
			NewRun: next, Generation: 2, Outcome: "release"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"submit refused by case_ended: refund 125.00 EUR, generation 2, adj_2", "by run " + next.String() + ", generation 2"} {
		p, err := rs[i].Payload()
		if err != nil {
			t.Fatal(err)
		}
		if got := receiptDetails(rs[i], p, "EUR"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A submitted receipt of a higher generation shows the freed amount. A finding by a lookup, and its
// plan, show the URL of the escrow service.
func TestReceiptsSayWhatWasFreedAndWhoWasAsked(t *testing.T) {
	t.Parallel()
	const at = "https://escrow.example/v1/executions"
	higher := receipts.Payload{Outcome: "release", Amount: 60000, Currency: "EUR", Generation: 2, Freed: 40000}
	if got := receiptDetails(receipts.Receipt{Subtype: receipts.Submitted}, higher, "EUR"); got != "release 600.00 EUR, freed 400.00 EUR" {
		t.Errorf("%q", got)
	}
	if got := provenance(receipts.Payload{PlannedBy: "user:ada", LookupURL: at, SelfDeclared: true}); got != "; planned by user:ada; looked up at "+at+"; self-declared" {
		t.Errorf("%q", got)
	}
	for url, want := range map[string]string{at: "that the planner named: " + at, "": "that the planner named"} {
		var out bytes.Buffer
		plan := bulk.Plan{Spec: bulk.Spec{Finding: &bulk.PlannedFinding{Class: escrow.Executed, Moved: 1, Lookup: true, LookupURL: url}}}
		s := screen.New(&out)
		view.Plan(s, plan)
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) || strings.Contains(got, "named: people") {
			t.Errorf("%s", out.String())
		}
	}
}
