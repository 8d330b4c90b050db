package audit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/archive"
	"github.com/recourse-dev/recourse/receipts"
)

// The audit knows words of the engine in rows without importing it.
func TestStoredWordsAreThoseOfTheEngine(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{reasonPoisonPill, background.ReasonPoisonPill}, {causeManual, circuit.CauseManual},
		{breakerClosed, string(circuit.Closed)}, {breakerOpen, string(circuit.Open)}, {breakerHalfOpen, string(circuit.HalfOpen)},
		{receipts.StatePending, string(background.Pending)}, {receipts.StateRunning, string(background.Running)}, {receipts.StateScheduled, string(background.Scheduled)}, {receipts.StateDeadLettered, string(background.DeadLettered)},
		{receipts.LetterOpen, string(background.LetterOpen)}, {receipts.LetterPurged, string(background.LetterPurged)}, {receipts.ClassExecuted, string(background.Executed)},
	} {
		if same[0] != same[1] {
			t.Errorf("%q, the engine says %q", same[0], same[1])
		}
	}
	for _, state := range []background.State{background.Pending, background.Running, background.Scheduled, background.Succeeded, background.DeadLettered, background.Cancelled} {
		for _, letter := range []background.LetterStatus{"", background.LetterOpen, background.LetterForked, background.LetterPurged} {
			here, there := StoredRun{State: string(state), Letter: string(letter)}, background.Run{State: state, Letter: letter}
			if here.IsActive() != there.IsActive() {
				t.Errorf("%s, %s: active %t", state, letter, here.IsActive())
			}
		}
	}
}

// Breaks beyond MaxBreaks are counted, also those from the audit of a case.
func TestBreaksThatAreNotKeptAreCounted(t *testing.T) {
	t.Parallel()
	one, all := emptyReport(), emptyReport()
	for n := range MaxBreaks + 7 {
		one.fail(InvariantFold, breakSubject{tenant: "acme"}, "break %d", n)
	}
	all.fail(InvariantFold, breakSubject{}, "the first")
	all.add(one)
	if len(all.Breaks) != MaxBreaks || all.TotalBreaks != MaxBreaks+8 || all.Omitted() != 8 || all.Verdict(InvariantFold) != "the first" {
		t.Errorf("%d kept of %d, %s", len(all.Breaks), all.TotalBreaks, all.Verdict(InvariantFold))
	}
}

// No run lost more workers than allowed, except one that died of the next loss.
func TestTheAuditCountsLostWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lost, most int
		reason     string
		holds      bool
	}{
		{5, 0, "", true}, {6, 0, "", false}, {6, 0, reasonPoisonPill, true}, {7, 0, reasonPoisonPill, false},
		{6, 8, "", true}, {9, 8, "", false}, {900, -1, "", true},
	} {
		run := StoredRun{ID: receipts.RunID(uuid.New()), State: receipts.StatePending, Attempts: c.lost, Recoveries: c.lost, Reason: c.reason}
		history := receipts.History{Runs: map[receipts.RunID]receipts.RunHistory{run.ID: {State: receipts.StatePending, AttemptCount: c.lost, Recoveries: c.lost}}}
		a := emptyReport()
		auditRuns(a, breakSubject{tenant: "acme"}, &StoredCase{Runs: []StoredRun{run}}, history, c.most)
		if a.OK() != c.holds || !c.holds && !strings.Contains(a.Verdict(InvariantBudgets), "the limit is") {
			t.Errorf("%+v: %+v", c, a.Breaks)
		}
	}
}

// Each receipt that names a file without its digest, or a missing file, is a break.
func TestAnArchiveFileWithoutADigestIsABreak(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store, err := archive.OpenDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, caseID := context.Background(), receipts.CaseID(uuid.New())
	if err := store.Put(ctx, "acme/old.jsonl.gz", []byte("old")); err != nil {
		t.Fatal(err)
	}
	purged := receipts.Draft{Run: receipts.RunID(uuid.New()), Subtype: receipts.Purged, Actor: "user:ada", At: time.Unix(1_800_000_000, 0), Payload: receipts.Payload{Archive: "acme/old.jsonl.gz"}}
	gone := purged
	gone.Payload.Archive = "acme/gone.jsonl.gz"
	trail, _, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID), purged, purged, gone, gone)
	if err != nil {
		t.Fatal(err)
	}
	c, a := newArchiveCheck(store), emptyReport()
	if err := c.check(ctx, a, breakSubject{tenant: "acme", caseID: caseID}, trail); err != nil {
		t.Fatal(err)
	}
	if want := (Archived{Files: 2, Changed: 1, Missing: 1}); c.summary != want || len(a.Breaks) != 4 || a.Breaks[0].Receipt == a.Breaks[1].Receipt {
		t.Errorf("not every receipt is reported: %+v, %+v", c.summary, a.Breaks)
	}
}

func TestNumbersThatAreMissingOrGivenTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to int64
		words    string
	}{
		{1213, 1220, "numbers 1213 to 1220 are missing in the order of events"}, {7, 7, "number 7 is missing in the order of events"},
		{8, 6, "number 7 is given twice in the order of events"}, {10, 6, "numbers 7 to 9 are given twice in the order of events"},
	} {
		if words := gapText(c.from, c.to); words != c.words {
			t.Errorf("from %d to %d: %q, want %q", c.from, c.to, words, c.words)
		}
	}
}
