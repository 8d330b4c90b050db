package audit

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/archive"
	"github.com/recourse-dev/recourse/internal/schema/stored"
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
		run := StoredRun{ID: receipts.RunID(uuid.New()), State: receipts.StatePending, Live: true, Active: true, Attempts: c.lost, Recoveries: c.lost, Reason: c.reason}
		history := receipts.History{Runs: map[receipts.RunID]receipts.RunHistory{run.ID: {State: receipts.StatePending, AttemptCount: c.lost, Recoveries: c.lost}}}
		a := emptyReport()
		auditRuns(a, breakSubject{tenant: "acme"}, &StoredCase{Runs: []StoredRun{run}}, history, c.most)
		if a.OK() != c.holds || !c.holds && !strings.Contains(a.Verdict(InvariantBudgets), "the limit is") {
			t.Errorf("%+v: %+v", c, a.Breaks)
		}
	}
}

// A run whose row and receipts differ in whether it died is a break that says so, also where the run died while
// it waited, without an attempt.
func TestADeathThatOnlyTheReceiptsOrTheRowHaveIsABreak(t *testing.T) {
	t.Parallel()
	id, died := receipts.RunID(uuid.New()), time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		state    string
		recorded receipts.RunHistory
		breaks   string
	}{
		{receipts.StatePending, receipts.RunHistory{State: receipts.StateDeadLettered, DeadAt: died}, "state pending, dead by its receipts: true"},
		{receipts.StateDeadLettered, receipts.RunHistory{State: receipts.StatePending}, "state dead_lettered, dead by its receipts: false"},
	} {
		a := emptyReport()
		auditRuns(a, breakSubject{tenant: "acme"}, &StoredCase{Runs: []StoredRun{{ID: id, State: c.state}}}, receipts.History{Runs: map[receipts.RunID]receipts.RunHistory{id: c.recorded}}, 0)
		if !strings.Contains(a.Verdict(InvariantLetters), c.breaks) {
			t.Errorf("%s: %s", c.breaks, a.Verdict(InvariantLetters))
		}
	}
}

// Attempts that start before the first due time, or before the activation, of their run are early, as those before
// a retry are.
func TestEveryEarlyAttemptIsCounted(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	run := receipts.RunID(uuid.New())
	draft := func(subtype receipts.Subtype, second int, p receipts.Payload) receipts.Draft {
		return receipts.Draft{Run: run, Subtype: subtype, Actor: "worker", At: start.Add(time.Duration(second) * time.Second), Payload: p}
	}
	due := func(second int) receipts.Payload {
		return receipts.Payload{NextRetryAt: start.Add(time.Duration(second) * time.Second)}
	}
	for what, c := range map[string]struct {
		drafts []receipts.Draft
		early  int
	}{
		"in time":               {[]receipts.Draft{draft(receipts.Submitted, 0, due(5)), draft(receipts.AttemptStarted, 5, receipts.Payload{Attempt: 1})}, 0},
		"the first":             {[]receipts.Draft{draft(receipts.Submitted, 0, due(5)), draft(receipts.AttemptStarted, 4, receipts.Payload{Attempt: 1})}, 1},
		"before the activation": {[]receipts.Draft{draft(receipts.Submitted, 0, receipts.Payload{Pending: true}), draft(receipts.Activated, 9, receipts.Payload{}), draft(receipts.AttemptStarted, 8, receipts.Payload{Attempt: 1})}, 1},
		"a retry":               {[]receipts.Draft{draft(receipts.RetryScheduled, 1, due(5)), draft(receipts.AttemptStarted, 4, receipts.Payload{Attempt: 2})}, 1},
	} {
		caseID := receipts.CaseID(uuid.New())
		rs, _, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID), c.drafts...)
		if err != nil {
			t.Fatal(err)
		}
		if n := earlyAttempts(rs); n != c.early {
			t.Errorf("%s: %d early attempts", what, n)
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

var errLost = errors.New("the connection is lost")

// lostRows is a reader whose connection breaks off.
type lostRows struct{ RowReader }

func (lostRows) PlanItems(context.Context, uuid.UUID, func(PlanItem)) error { return errLost }

func (lostRows) EventsFrom(context.Context, string, int64) iter.Seq2[NumberedReceipt, error] {
	return func(yield func(NumberedReceipt, error) bool) { yield(NumberedReceipt{}, errLost) }
}

func (lostRows) Case(context.Context, string, receipts.CaseID) (StoredCase, []receipts.Receipt, error) {
	return StoredCase{}, nil, errLost
}

// What can't be read is an error, and no break.
func TestALostConnectionIsNoBreak(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	id, webhook := receipts.CaseID(uuid.New()), uuid.New()
	rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id), receipts.Draft{Subtype: receipts.WebhookChanged, Actor: "user:ada", At: time.Unix(1_800_000_000, 0), Payload: receipts.Payload{
		Reference: webhook.String(), AskedFor: "create", ContentDigest: "d", Webhook: `{"state":"active"}`, WebhookPosition: &receipts.WebhookPosition{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := newAuditor(lostRows{}, Query{})
	for what, o := range map[string]OperationLog{
		"items of a plan": {Subject: stored.BulkLog, Plans: []BulkPlan{{ID: uuid.New()}}},
		"events":          {Case: id, Subject: stored.WebhookLog, Head: receipts.Head{Seq: 1, Link: rs[0].Link}, Trail: rs, Webhooks: []Webhook{{ID: webhook, PositionVersion: 1}}},
	} {
		a := s.newReport()
		if err := s.auditOperationLog(ctx, a, "acme", o); !errors.Is(err, errLost) || slices.ContainsFunc(a.Breaks, func(b Break) bool { return strings.Contains(b.What, errLost.Error()) }) {
			t.Errorf("%s: %v, %+v", what, err, a.Breaks)
		}
	}
	if _, _, err := s.auditCaseRechecked(ctx, "acme", StoredCase{}, nil); !errors.Is(err, errLost) || errors.Is(err, errCaseVanished) {
		t.Errorf("a case: %v", err)
	}
}

// A receipt may name anything as its archive file. What can't be read is a break, and the audit goes on.
func TestAnArchiveFileThatCanNotBeReadIsABreak(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store, err := archive.OpenDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "acme"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, caseID := context.Background(), receipts.CaseID(uuid.New())
	var drafts []receipts.Draft
	for _, name := range []string{"../outside", "acme", "/etc/passwd"} {
		drafts = append(drafts, receipts.Draft{Run: receipts.RunID(uuid.New()), Subtype: receipts.Purged, Actor: "user:ada", At: time.Unix(1_800_000_000, 0), Payload: receipts.Payload{Archive: name, ArchiveDigest: "00"}})
	}
	rs, _, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	c, a := newArchiveCheck(store), emptyReport()
	if err := c.check(ctx, a, breakSubject{tenant: "acme", caseID: caseID}, rs); err != nil {
		t.Fatal(err)
	}
	if want := (Archived{Files: 3, Unreadable: 3}); c.summary != want || len(a.Breaks) != 3 || a.Breaks[0].Invariant != InvariantArchive || a.Breaks[0].Receipt != rs[0].ID() {
		t.Errorf("%+v, %+v", c.summary, a.Breaks)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if err := newArchiveCheck(stoppedStore{}).check(stopped, a, breakSubject{}, rs); !errors.Is(err, context.Canceled) {
		t.Errorf("an audit that was stopped: %v", err)
	}
}

// stoppedStore is an archive that gives up with its context.
type stoppedStore struct{ archive.Store }

func (stoppedStore) Open(ctx context.Context, _ string) (io.ReadCloser, error) { return nil, ctx.Err() }

// Of a case that a file lacks, only what a file can show is said to be checked.
func TestTheReportOfAMissingCaseSaysWhatIsNotChecked(t *testing.T) {
	t.Parallel()
	text, _, _ := threeCases(t)
	if a := Empty(opened(t, text)); !slices.Equal(a.NotChecked, needRows) || a.Verdict(InvariantEscrows) != NotCheckedVerdict {
		t.Errorf("of a file: %q", a.NotChecked)
	}
	if a := Empty(lostRows{}); !slices.Equal(a.NotChecked, []string{InvariantOrder}) {
		t.Errorf("of a database: %q", a.NotChecked)
	}
}

func TestATenantThatIsNamedTwiceIsAuditedOnce(t *testing.T) {
	t.Parallel()
	text, _, _ := threeCases(t)
	a, err := Run(context.Background(), opened(t, text), Query{Tenants: []string{"bank", "acme", "bank"}})
	if err != nil || a.Cases != 3 || a.Receipts != 9 {
		t.Errorf("%d cases, %d receipts, %v", a.Cases, a.Receipts, err)
	}
}

// Every difference shows the two values that differ.
func TestEveryDifferenceShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	at, yes, no := time.Unix(1_800_000_000, 0).UTC(), true, false
	for _, d := range []differences{
		compareAnnotations(Annotations{Held: true, HoldReason: "a"}, Annotations{Held: true, HoldReason: "b"}),
		compareAnnotations(Annotations{MarkReason: "a", Review: &yes}, Annotations{MarkReason: "b", Review: &yes}),
		compareAnnotations(Annotations{Reprocess: &yes}, Annotations{Reprocess: &no}),
		compareAnnotations(Annotations{RetentionEndsAt: at}, Annotations{RetentionEndsAt: at.Add(time.Microsecond)}),
	} {
		if len(d) != 1 || d[0].stored == d[0].recorded {
			t.Errorf("%+v", d)
		}
	}
}

// What an escrow may have committed is what it holds and by how much it is breached, which rises only when
// deltas are folded.
func TestAnEscrowMayHaveCommittedWhatItHoldsAndItsBreach(t *testing.T) {
	t.Parallel()
	for folded, want := range map[int64]string{1500: "", 1501: "escrow esc_1 of acme: committed 1501 of 1000 held, and stored as breached by 500"} {
		a := emptyReport()
		e := Escrow{Reference: "esc_1", Held: 1000, Committed: folded + 100, OpenDeltas: 100, Breached: 500}
		if err := newAuditor(nil, Query{}).auditEscrow(t.Context(), a, "acme", e, e.Committed); err != nil || a.Broken[InvariantEscrows] != want {
			t.Errorf("committed %d: %v, %q", folded, err, a.Broken)
		}
	}
}
