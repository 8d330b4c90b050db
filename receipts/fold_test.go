package receipts

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 11, 0, seconds, 0, time.UTC)
}

// draftOf writes a draft of runA in few words; n is its second and makes its time.
func draftOf(s Subtype, n int, p Payload) Draft {
	return Draft{Run: runA, Subtype: s, Actor: "w", At: at(n), Payload: p}
}

func submit() Draft { return draftOf(Submitted, 0, Payload{}) }
func start(n int) Draft {
	return draftOf(AttemptStarted, 10*n, Payload{Attempt: n})
}
func retry(n int) Draft {
	return draftOf(RetryScheduled, 10*n+1, Payload{Attempt: n, BudgetSpent: n, NextRetryAt: at(10*n + 5)})
}
func die(n int) Draft {
	return draftOf(DeadLettered, 10*n+1, Payload{Attempt: n, BudgetSpent: n, DeadLetteredAt: at(10*n + 1)})
}

func discard(n int) Draft {
	return draftOf(Discarded, 10*n+1, Payload{Attempt: n, BudgetSpent: n})
}

func folded(t *testing.T, drafts ...Draft) (History, error) {
	t.Helper()
	rs, _ := chained(t, testCase, drafts...)
	return Fold(rs)
}

func TestFoldOfAWholeHistory(t *testing.T) {
	t.Parallel()
	after := func(d time.Duration) time.Time { return testAt.Add(d).UTC().Truncate(time.Microsecond) }
	got, err := folded(t, sampleDrafts()...)
	if err != nil {
		t.Fatal(err)
	}
	want := History{
		Case: testCase, Tenant: "acme", Order: []RunID{runA, runB}, UnknownOpen: 0, FirstSentAt: after(time.Second),
		Settlement: sampleDrafts()[0].Payload.Settlement,
		Runs: map[RunID]RunHistory{
			runA: {
				Run: runA, Family: "post_adjudication", RetryKey: "txr_1:release", Queue: "settlement:3",
				State: StateDeadLettered, Letter: LetterForked, AttemptCount: 2, BudgetSpent: 2, Class: ClassUnknown,
				DeadAt: after(4 * time.Second), LastError: sampleDrafts()[2].Payload.Error,
				Attempts: []AttemptHistory{
					{Number: 1, StartedAt: after(time.Second), EndedAt: after(2 * time.Second), EndedBy: RetryScheduled, Class: ClassUnknown, CutShort: true},
					{Number: 2, StartedAt: after(3 * time.Second), EndedAt: after(4 * time.Second), EndedBy: DeadLettered, Class: ClassNotExecuted},
				},
			},
			runB: {
				Run: runB, Family: "post_adjudication", RetryKey: "txr_1:release",
				State: StateSucceeded, Class: ClassExecuted,
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a run was submitted with stays in its history, and attempts that were given back are counted.
func TestFoldOfARemoteRun(t *testing.T) {
	t.Parallel()
	given := draftOf(AttemptInterrupted, 11, Payload{Attempt: 1, HandedBack: true, NextRetryAt: at(11)})
	h, err := folded(t, draftOf(Submitted, 0, Payload{Remote: true, Priority: -7, NextRetryAt: at(10), ExpiresAt: at(99)}), start(1), given, start(2))
	if err != nil {
		t.Fatal(err)
	}
	r := h.Runs[runA]
	if !r.Remote || r.Priority != -7 || !r.ExpiresAt.Equal(at(99)) || r.HandedBack != 1 || r.BudgetSpent != 0 || r.MovesMoney || r.Pending {
		t.Errorf("%+v", r)
	}
}

// The outstanding calls follow from the ends and the late answers of attempts. An end by a version that did not
// record the call leaves the attempt undecided, and those that the version could not distinguish from it.
func TestFoldKeepsOutstandingCalls(t *testing.T) {
	t.Parallel()
	cut := func(n int, call string) Draft {
		d := retry(n)
		d.Payload.Call, d.Payload.Error.Type = call, FailureTimeout
		return d
	}
	h, err := folded(t, submit(), start(1), cut(1, CallOut), start(2), cut(2, CallOver), start(3), cut(3, ""), start(4), retry(4),
		start(5), cut(5, CallOut), draftOf(AnsweredLate, 56, Payload{Attempt: 5}))
	if err != nil {
		t.Fatal(err)
	}
	run := h.Runs[runA]
	if diff := cmp.Diff([]int{1}, run.OutstandingCalls()); diff != "" {
		t.Error(diff)
	}
	for attempt, want := range map[int]bool{1: true, 2: false, 3: true, 4: false, 5: false, 64: false, 66: true} {
		if run.MayBeOutstanding(attempt) != want {
			t.Errorf("attempt %d may be out: %t", attempt, !want)
		}
	}
}

func TestFoldOfNothingIsTheZeroHistory(t *testing.T) {
	t.Parallel()
	h, err := Fold(nil)
	if err != nil || !h.Case.IsZero() || len(h.Runs) != 0 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestFoldOfLegalOrders(t *testing.T) {
	t.Parallel()
	executed := Payload{Finding: ClassExecuted, OutcomeClass: ClassExecuted}
	notExecuted := Payload{Finding: ClassNotExecuted, OutcomeClass: ClassNotExecuted}
	interrupted := draftOf(AttemptInterrupted, 11, Payload{Attempt: 1, Recoveries: 1, UnknownOpen: 1, OutcomeClass: ClassUnknown})
	for name, test := range map[string]struct {
		drafts        []Draft
		state, letter string
		unknown       int
		class         string
	}{
		"submitted":              {[]Draft{submit()}, StatePending, "", 0, ""},
		"started":                {[]Draft{submit(), start(1)}, StateRunning, "", 0, ""},
		"waits":                  {[]Draft{submit(), start(1), retry(1)}, StateScheduled, "", 0, ""},
		"again":                  {[]Draft{submit(), start(1), retry(1), start(2)}, StateRunning, "", 0, ""},
		"succeeds":               {[]Draft{submit(), start(1), draftOf(AttemptSucceeded, 11, Payload{Attempt: 1, OutcomeClass: ClassExecuted})}, StateSucceeded, "", 0, ClassExecuted},
		"interrupted":            {[]Draft{submit(), start(1), interrupted}, StateScheduled, "", 1, ClassUnknown},
		"a start keeps unknowns": {[]Draft{submit(), start(1), interrupted, start(2)}, StateRunning, "", 1, ClassUnknown},
		"dies":                   {[]Draft{submit(), start(1), die(1)}, StateDeadLettered, LetterOpen, 0, ""},
		"dies unstarted":         {[]Draft{submit(), die(0)}, StateDeadLettered, LetterOpen, 0, ""},
		"dies waiting":           {[]Draft{submit(), start(1), retry(1), die(2)}, StateDeadLettered, LetterOpen, 0, ""},
		"cancelled unstarted":    {[]Draft{submit(), draftOf(Cancelled, 1, Payload{})}, StateCancelled, "", 0, ""},
		"cancelled running":      {[]Draft{submit(), start(1), draftOf(Cancelled, 11, Payload{Attempt: 1, BudgetSpent: 1})}, StateCancelled, "", 0, ""},
		"cancelled waiting":      {[]Draft{submit(), start(1), retry(1), draftOf(Cancelled, 12, Payload{BudgetSpent: 1})}, StateCancelled, "", 0, ""},
		"discarded":              {[]Draft{submit(), start(1), discard(1)}, StateDiscarded, "", 0, ""},
		"discarded unstarted":    {[]Draft{submit(), discard(0)}, StateDiscarded, "", 0, ""},
		"discarded waiting":      {[]Draft{submit(), start(1), retry(1), discard(2)}, StateDiscarded, "", 0, ""},
		"activated":              {[]Draft{draftOf(Submitted, 0, Payload{Pending: true}), draftOf(Activated, 10, Payload{}), start(1)}, StateRunning, "", 0, ""},
		"due later":              {[]Draft{draftOf(Submitted, 0, Payload{NextRetryAt: at(10)}), start(1)}, StateRunning, "", 0, ""},
		"in time":                {[]Draft{draftOf(Submitted, 0, Payload{ExpiresAt: at(11)}), start(1)}, StateRunning, "", 0, ""},
		"forked":                 {[]Draft{submit(), die(1), draftOf(ManualRetryRequested, 20, Payload{NewRun: runB})}, StateDeadLettered, LetterForked, 0, ""},
		"superseded":             {[]Draft{submit(), die(1), draftOf(Superseded, 20, Payload{})}, StateDeadLettered, LetterSuperseded, 0, ""},
		"paid though purged":     {[]Draft{submit(), die(1), draftOf(Purged, 20, Payload{}), draftOf(Reconciled, 30, executed)}, StateDeadLettered, LetterPurged, 0, ClassExecuted},
		"paid though freed":      {[]Draft{submit(), die(1), draftOf(ReservationFreed, 20, Payload{Freed: 5}), draftOf(Reconciled, 30, executed)}, StateDeadLettered, LetterReconciled, 0, ClassExecuted},
		"paid though cancelled":  {[]Draft{submit(), draftOf(Cancelled, 20, Payload{}), draftOf(Reconciled, 30, executed)}, StateCancelled, "", 0, ClassExecuted},
		"paid though forked":     {[]Draft{submit(), die(1), draftOf(ManualRetryRequested, 20, Payload{NewRun: runB}), draftOf(Reconciled, 30, executed)}, StateDeadLettered, LetterForked, 0, ClassExecuted},
		"paid though superseded": {[]Draft{submit(), die(1), draftOf(Superseded, 20, Payload{}), draftOf(Reconciled, 30, executed)}, StateDeadLettered, LetterSuperseded, 0, ClassExecuted},
		"freed":                  {[]Draft{submit(), die(1), draftOf(ReservationFreed, 20, Payload{Freed: 5})}, StateDeadLettered, LetterReconciled, 0, ""},
		"freed after a purge":    {[]Draft{submit(), die(1), draftOf(Purged, 20, Payload{}), draftOf(ReservationFreed, 30, Payload{Freed: 5})}, StateDeadLettered, LetterPurged, 0, ""},
		"a cancelled fork freed": {[]Draft{submit(), draftOf(Cancelled, 20, Payload{ReservationKept: true}), draftOf(ReservationFreed, 30, Payload{Freed: 5})}, StateCancelled, "", 0, ""},
		"purged":                 {[]Draft{submit(), die(1), draftOf(Purged, 20, Payload{})}, StateDeadLettered, LetterPurged, 0, ""},
		"expired":                {[]Draft{submit(), die(1), draftOf(RetentionExpired, 20, Payload{})}, StateDeadLettered, LetterPurged, 0, ""},
		"letter found executed":  {[]Draft{submit(), die(1), draftOf(Reconciled, 20, executed)}, StateDeadLettered, LetterReconciled, 0, ClassExecuted},
		"letter found untouched": {[]Draft{submit(), start(1), interrupted, draftOf(DeadLettered, 20, Payload{Recoveries: 1, DeadLetteredAt: at(20), UnknownOpen: 1, OutcomeClass: ClassUnknown}),
			draftOf(Reconciled, 30, notExecuted)}, StateDeadLettered, LetterOpen, 0, ClassNotExecuted},
		"waiting run found executed":  {[]Draft{submit(), start(1), retry(1), draftOf(Reconciled, 20, executed)}, StateSucceeded, "", 0, ClassExecuted},
		"waiting run found untouched": {[]Draft{submit(), start(1), interrupted, draftOf(Reconciled, 20, notExecuted)}, StateScheduled, "", 0, ClassNotExecuted},
		"running run ends by itself":  {[]Draft{submit(), start(1), draftOf(Reconciled, 20, executed)}, StateRunning, "", 0, ClassExecuted},
		"late answer tells":           {[]Draft{submit(), start(1), interrupted, draftOf(AnsweredLate, 20, Payload{Attempt: 1, OutcomeClass: ClassNotExecuted})}, StateScheduled, "", 0, ClassNotExecuted},
		"late answer tells nothing":   {[]Draft{submit(), start(1), interrupted, draftOf(AnsweredLate, 20, Payload{Attempt: 1})}, StateScheduled, "", 1, ClassUnknown},
		"receipts without a move": {[]Draft{submit(), start(1), interrupted, draftOf(HoldPlaced, 12, Payload{}), draftOf(HoldReleased, 12, Payload{}), draftOf(Replayed, 12, Payload{}), draftOf(Marked, 12, Payload{}), draftOf(RetentionEnding, 12, Payload{}),
			draftOf(ConservationBreach, 12, Payload{}), draftOf(Refused, 12, Payload{}), draftOf(PolicyChanged, 12, Payload{}), draftOf(BreakerOpened, 12, Payload{}),
			draftOf(BreakerReleased, 12, Payload{}), draftOf(PeopleChanged, 12, Payload{People: 1}), draftOf(OutOfBandChangeDetected, 12, Payload{})}, StateScheduled, "", 1, ClassUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := folded(t, test.drafts...)
			if err != nil {
				t.Fatal(err)
			}
			r := h.Runs[runA]
			if r.State != test.state || r.Letter != test.letter || h.UnknownOpen != test.unknown || r.Class != test.class {
				t.Errorf("%s %q, %d unknown, class %q", r.State, r.Letter, h.UnknownOpen, r.Class)
			}
		})
	}
}

// A new subtype has to say what it changes, or that it changes nothing.
func TestFoldKnowsEverySubtype(t *testing.T) {
	t.Parallel()
	for _, s := range KnownSubtypes() {
		if _, err := folded(t, submit(), draftOf(s, 1, Payload{})); err != nil && strings.Contains(err.Error(), "does not know") {
			t.Error(err)
		}
	}
}

func TestFoldRefusesOrdersThatCannotBe(t *testing.T) {
	t.Parallel()
	of := func(run RunID, d Draft) Draft {
		d.Run = run
		return d
	}
	cancel := draftOf(Cancelled, 12, Payload{Attempt: 1})
	ask := draftOf(CancelRequested, 11, Payload{Reason: "sent in error"})
	succeed := draftOf(AttemptSucceeded, 12, Payload{Attempt: 1})
	for name, test := range map[string]struct {
		drafts []Draft // the last one is illegal
		part   string
	}{
		"submitted twice":         {[]Draft{submit(), submit()}, "submitted before"},
		"submitted without run":   {[]Draft{of(RunID{}, submit())}, "run is not given"},
		"fork of nothing":         {[]Draft{draftOf(Submitted, 0, Payload{ParentRun: runB})}, "never submitted"},
		"never submitted":         {[]Draft{start(1)}, "never submitted"},
		"another never submitted": {[]Draft{submit(), of(runB, start(1))}, "never submitted"},
		"hold of nothing":         {[]Draft{draftOf(HoldPlaced, 0, Payload{})}, "never submitted"},
		"cancel asked of none":    {[]Draft{submit(), ask}, "while the run is pending"},
		"cancel asked twice":      {[]Draft{submit(), start(1), ask, ask}, "a cancel was asked for before, by "},
		"starts while running":    {[]Draft{submit(), start(1), start(2)}, "while the run is running"},
		"starts after the end":    {[]Draft{submit(), start(1), die(1), start(2)}, "while the run is dead_lettered"},
		"number skipped":          {[]Draft{submit(), start(2)}, "attempt 2 starts after attempt 0"},
		"number repeated":         {[]Draft{submit(), start(1), retry(1), draftOf(AttemptStarted, 20, Payload{Attempt: 1})}, "attempt 1 starts after attempt 1"},
		"too early":               {[]Draft{submit(), start(1), retry(1), draftOf(AttemptStarted, 14, Payload{Attempt: 2})}, "1s before its time"},
		"early at first":          {[]Draft{draftOf(Submitted, 0, Payload{NextRetryAt: at(11)}), start(1)}, "1s before its time"},
		"not activated":           {[]Draft{draftOf(Submitted, 0, Payload{Pending: true}), start(1)}, "before the run is activated"},
		"activated twice":         {[]Draft{draftOf(Submitted, 0, Payload{Pending: true}), draftOf(Activated, 1, Payload{}), draftOf(Activated, 2, Payload{})}, "activated while the run is pending"},
		"activated unasked":       {[]Draft{submit(), draftOf(Activated, 1, Payload{})}, "activated while the run is pending"},
		"before its activation":   {[]Draft{draftOf(Submitted, 0, Payload{Pending: true}), draftOf(Activated, 12, Payload{}), start(1)}, "2s before its time"},
		"starts when expired":     {[]Draft{draftOf(Submitted, 0, Payload{ExpiresAt: at(10)}), start(1)}, "after the run expired"},
		"starts when discarded":   {[]Draft{submit(), start(1), discard(1), start(2)}, "while the run is discarded"},
		"discards money":          {[]Draft{draftOf(Submitted, 0, Payload{OperationKey: "k"}), start(1), discard(1)}, "moves money"},
		"fork of the discarded":   {[]Draft{submit(), start(1), discard(1), draftOf(ManualRetryRequested, 12, Payload{NewRun: runB})}, "the run is discarded"},
		"retry unstarted":         {[]Draft{submit(), retry(1)}, "no attempt is open"},
		"retry without a time":    {[]Draft{submit(), start(1), draftOf(RetryScheduled, 11, Payload{Attempt: 1})}, "next_retry_at"},
		"success unstarted":       {[]Draft{submit(), succeed}, "no attempt is open"},
		"interrupted waiting":     {[]Draft{submit(), start(1), retry(1), draftOf(AttemptInterrupted, 12, Payload{Attempt: 1, BudgetSpent: 1})}, "no attempt is open"},
		"two endings":             {[]Draft{submit(), start(1), retry(1), retry(1)}, "no attempt is open"},
		"success after success":   {[]Draft{submit(), start(1), succeed, succeed}, "no attempt is open"},
		"cancelled after success": {[]Draft{submit(), start(1), succeed, cancel}, "no attempt is open"},
		"dies twice":              {[]Draft{submit(), start(1), die(1), die(1)}, "no attempt is open"},
		"dies after success":      {[]Draft{submit(), start(1), succeed, die(1)}, "no attempt is open"},
		"death without a time":    {[]Draft{submit(), draftOf(DeadLettered, 1, Payload{})}, "dead_lettered_at"},
		"ends another attempt":    {[]Draft{submit(), start(1), retry(1), start(2), retry(1)}, "ends attempt 1 while attempt 2"},
		"ends none by name":       {[]Draft{submit(), start(1), draftOf(Cancelled, 11, Payload{})}, "ends attempt 0 while attempt 1"},
		"budget shrinks":          {[]Draft{submit(), start(1), retry(1), start(2), draftOf(AttemptInterrupted, 21, Payload{Attempt: 2, Recoveries: 1})}, "fall to 0 and 1"},
		"unknown below none":      {[]Draft{submit(), start(1), draftOf(AttemptSucceeded, 11, Payload{Attempt: 1, UnknownOpen: -1})}, "unknown_open is -1"},
		"late before its end":     {[]Draft{submit(), start(1), draftOf(AnsweredLate, 12, Payload{Attempt: 1})}, "has not ended"},
		"late without attempt":    {[]Draft{submit(), start(1), retry(1), draftOf(AnsweredLate, 12, Payload{})}, "attempt 0"},
		"late beyond the last":    {[]Draft{submit(), start(1), retry(1), draftOf(AnsweredLate, 12, Payload{Attempt: 2})}, "attempt 2"},
		"fork of the living":      {[]Draft{submit(), draftOf(ManualRetryRequested, 1, Payload{NewRun: runB})}, "no letter is open: the run is pending"},
		"fork twice":              {[]Draft{submit(), die(1), draftOf(ManualRetryRequested, 12, Payload{NewRun: runB}), draftOf(ManualRetryRequested, 12, Payload{NewRun: runB})}, "the letter is forked"},
		"fork into nothing":       {[]Draft{submit(), die(1), draftOf(ManualRetryRequested, 12, Payload{})}, "new_run"},
		"superseded alive":        {[]Draft{submit(), draftOf(Superseded, 1, Payload{})}, "no letter is open"},
		"purged after fork":       {[]Draft{submit(), die(1), draftOf(ManualRetryRequested, 12, Payload{NewRun: runB}), draftOf(Purged, 13, Payload{})}, "the letter is forked"},
		"expired twice":           {[]Draft{submit(), die(1), draftOf(RetentionExpired, 12, Payload{}), draftOf(RetentionExpired, 13, Payload{})}, "the letter is purged"},
		"freed while it lives":    {[]Draft{submit(), draftOf(ReservationFreed, 1, Payload{Freed: 5})}, "nothing to free: the run is pending"},
		"freed while it runs":     {[]Draft{submit(), start(1), draftOf(ReservationFreed, 11, Payload{Freed: 5})}, "nothing to free: the run is running"},
		"freed after success":     {[]Draft{submit(), start(1), succeed, draftOf(ReservationFreed, 13, Payload{Freed: 5})}, "nothing to free: the run is succeeded"},
		"freed while unknown": {[]Draft{submit(), start(1), draftOf(DeadLettered, 11, Payload{Attempt: 1, DeadLetteredAt: at(11), UnknownOpen: 1, OutcomeClass: ClassUnknown}),
			draftOf(ReservationFreed, 12, Payload{Freed: 5})}, "1 attempts are unknown"},
		"finding unclear":       {[]Draft{submit(), draftOf(Reconciled, 1, Payload{Finding: ClassUnknown})}, "finding \"unknown\""},
		"finding after success": {[]Draft{submit(), start(1), succeed, draftOf(Reconciled, 13, Payload{Finding: ClassExecuted})}, "nothing to reconcile"},
		"not executed, freed":   {[]Draft{submit(), die(1), draftOf(ReservationFreed, 12, Payload{Freed: 5}), draftOf(Reconciled, 13, Payload{Finding: ClassNotExecuted})}, "nothing to reconcile"},
		"found twice":           {[]Draft{submit(), die(1), draftOf(Reconciled, 12, Payload{Finding: ClassExecuted, OutcomeClass: ClassExecuted}), draftOf(Reconciled, 13, Payload{Finding: ClassExecuted})}, "nothing to reconcile"},
		"not executed, forked":  {[]Draft{submit(), die(1), draftOf(ManualRetryRequested, 12, Payload{NewRun: runB}), draftOf(Reconciled, 13, Payload{Finding: ClassNotExecuted})}, "nothing to reconcile"},
		"finding after purge":   {[]Draft{submit(), die(1), draftOf(Purged, 12, Payload{}), draftOf(Reconciled, 13, Payload{Finding: ClassNotExecuted})}, "nothing to reconcile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := folded(t, test.drafts[:len(test.drafts)-1]...); err != nil {
				t.Fatalf("illegal before its last: %v", err)
			}
			h, err := folded(t, test.drafts...)
			var illegal *Illegal
			last := test.drafts[len(test.drafts)-1]
			if !errors.As(err, &illegal) || illegal.Case != testCase || illegal.Seq != int64(len(test.drafts)) || illegal.Subtype != last.Subtype {
				t.Fatalf("error = %v", err)
			}
			wantError(t, err, test.part)
			if h.Runs != nil {
				t.Error("a history came with the error")
			}
		})
	}
}

func TestFoldWantsOneCaseFromItsBeginning(t *testing.T) {
	t.Parallel()
	rs, _ := chained(t, testCase, sampleDrafts()...)
	other, _ := chained(t, numberedCase(1), sampleDrafts()...)
	for name, bad := range map[string][]Receipt{
		"tail":         rs[1:],
		"gap":          append(append([]Receipt{}, rs[:2]...), rs[3:]...),
		"another case": append(append([]Receipt{}, rs[:2]...), other[2:]...),
	} {
		if _, err := Fold(bad); err == nil {
			t.Errorf("%s is folded", name)
		}
	}
	rs[2].Body = []byte("{}")
	_, err := Fold(rs)
	wantError(t, err, fmt.Sprintf("%s.3", testCase))
}
