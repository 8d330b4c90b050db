package cli_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/cli"
	"github.com/recourse-dev/recourse/receipts"
)

// Each receipt that ends an attempt ends it in the answer of status, also that of a discarded job.
func TestTheStatusShowsHowEachAttemptEnded(t *testing.T) {
	t.Parallel()
	id, run, at := receipts.CaseID(uuid.New()), receipts.RunID(uuid.New()), time.Unix(1_800_000_000, 0).UTC()
	ends := 0
	for _, subtype := range receipts.KnownSubtypes() {
		if !subtype.EndsAttempt() {
			continue
		}
		ends++
		rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id),
			receipts.Draft{Run: run, Subtype: receipts.AttemptStarted, Actor: "worker:w", At: at, Payload: receipts.Payload{Attempt: 1}},
			receipts.Draft{Run: run, Subtype: subtype, Actor: "worker:w", At: at.Add(time.Second), Payload: receipts.Payload{Attempt: 1, AttemptClass: receipts.ClassNotExecuted}})
		if err != nil {
			t.Fatal(err)
		}
		if got := cli.AttemptsOf(rs); len(got) != 1 || got[0].Ended == nil || got[0].EndedBy != subtype || got[0].Duration != time.Second || got[0].Class != receipts.ClassNotExecuted {
			t.Errorf("%s: %+v", subtype, got)
		}
	}
	if ends != 6 {
		t.Errorf("%d subtypes end an attempt", ends)
	}
}
