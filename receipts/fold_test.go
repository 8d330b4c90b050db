package receipts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/recourse-dev/recourse/receipts"
)

func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 11, 0, seconds, 0, time.UTC)
}

// draftOf writes a draft of runA in few words; n is its second and makes its time.
func draftOf(s receipts.Subtype, n int, p receipts.Payload) receipts.Draft {
	return receipts.Draft{Run: runA, Subtype: s, Actor: "w", At: at(n), Payload: p}
}

func submit() receipts.Draft { return draftOf(receipts.Submitted, 0, receipts.Payload{}) }
func start(n int) receipts.Draft {
	return draftOf(receipts.AttemptStarted, 10*n, receipts.Payload{Attempt: n})
}
func retry(n int) receipts.Draft {
	return draftOf(receipts.RetryScheduled, 10*n+1, receipts.Payload{Attempt: n, BudgetSpent: n, NextRetryAt: at(10*n + 5)})
}
func die(n int) receipts.Draft {
	return draftOf(receipts.DeadLettered, 10*n+1, receipts.Payload{Attempt: n, BudgetSpent: n, DeadLetteredAt: at(10*n + 1)})
}

func discard(n int) receipts.Draft {
	return draftOf(receipts.Discarded, 10*n+1, receipts.Payload{Attempt: n, BudgetSpent: n})
}

func folded(t *testing.T, drafts ...receipts.Draft) (receipts.History, error) {
	t.Helper()
	rs, _ := chained(t, testCase, drafts...)
	return receipts.Fold(rs)
}

func TestFoldOfAWholeHistory(t *testing.T) {
	t.Parallel()
	after := func(d time.Duration) time.Time { return testAt.Add(d).UTC().Truncate(time.Microsecond) }
	got, err := folded(t, sampleDrafts()...)
	if err != nil {
		t.Fatal(err)
	}
	want := receipts.History{
		Case: testCase, Tenant: "acme", Order: []receipts.RunID{runA, runB}, UnknownOpen: 0, FirstSentAt: after(time.Second),
		Settlement: sampleDrafts()[0].Payload.Settlement,
		Runs: map[receipts.RunID]receipts.RunHistory{
			runA: {
				Run: runA, Family: "post_adjudication", RetryKey: "txr_1:release", Queue: "settlement:3",
				State: receipts.StateDeadLettered, Letter: receipts.LetterForked, AttemptCount: 2, BudgetSpent: 2, Class: receipts.ClassUnknown,
				DeadAt: after(4 * time.Second), LastError: sampleDrafts()[2].Payload.Error,
				Attempts: []receipts.AttemptHistory{
					{Number: 1, StartedAt: after(time.Second), EndedAt: after(2 * time.Second), EndedBy: receipts.RetryScheduled, Class: receipts.ClassUnknown, CutShort: true},
					{Number: 2, StartedAt: after(3 * time.Second), EndedAt: after(4 * time.Second), EndedBy: receipts.DeadLettered, Class: receipts.ClassNotExecuted},
				},
			},
			runB: {
				Run: runB, Family: "post_adjudication", RetryKey: "txr_1:release",
				State: receipts.StateSucceeded, Class: receipts.ClassExecuted,
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
	given := draftOf(receipts.AttemptInterrupted, 11, receipts.Payload{Attempt: 1, HandedBack: true, NextRetryAt: at(11)})
	h, err := folded(t, draftOf(receipts.Submitted, 0, receipts.Payload{Remote: true, Priority: -7, NextRetryAt: at(10), ExpiresAt: at(99)}), start(1), given, start(2))
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
	cut := func(n int, call string) receipts.Draft {
		d := retry(n)
		d.Payload.Call, d.Payload.Error.Type = call, receipts.FailureTimeout
		return d
	}
	h, err := folded(t, submit(), start(1), cut(1, receipts.CallOut), start(2), cut(2, receipts.CallOver), start(3), cut(3, ""), start(4), retry(4),
		start(5), cut(5, receipts.CallOut), draftOf(receipts.AnsweredLate, 56, receipts.Payload{Attempt: 5}))
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
	h, err := receipts.Fold(nil)
	if err != nil || !h.Case.IsZero() || len(h.Runs) != 0 {
		t.Errorf("%+v, %v", h, err)
	}
}

// A run is accepted while it waits for the end of a call that its service has accepted, and no longer.
func TestFoldKnowsAnAcceptedCall(t *testing.T) {
	t.Parallel()
	accepted := draftOf(receipts.RetryScheduled, 11, receipts.Payload{Attempt: 1, NextRetryAt: at(12), ReasonCode: receipts.ReasonAccepted, OutcomeClass: receipts.ClassUnknown, UnknownOpen: 1})
	probe := draftOf(receipts.RetryScheduled, 11, receipts.Payload{Attempt: 1, NextRetryAt: at(12), ReasonCode: "probe"})
	found := func(class string) receipts.Draft {
		return draftOf(receipts.Reconciled, 20, receipts.Payload{Finding: class, OutcomeClass: class})
	}
	for name, c := range map[string]struct {
		after []receipts.Draft
		want  bool
	}{
		"accepted": {[]receipts.Draft{accepted}, true}, "a probe": {[]receipts.Draft{probe}, false},
		"called again": {[]receipts.Draft{accepted, draftOf(receipts.AttemptStarted, 20, receipts.Payload{Attempt: 2})}, false},
		"not executed": {[]receipts.Draft{accepted, found(receipts.ClassNotExecuted)}, false}, "executed": {[]receipts.Draft{accepted, found(receipts.ClassExecuted)}, false},
		"dead": {[]receipts.Draft{accepted, die(2)}, false},
	} {
		h, err := folded(t, append([]receipts.Draft{submit(), start(1)}, c.after...)...)
		if err != nil || h.Runs[runA].Accepted != c.want {
			t.Errorf("%s: %+v, %v", name, h.Runs[runA], err)
		}
	}
}

func TestFoldOfLegalOrders(t *testing.T) {
	t.Parallel()
	executed := receipts.Payload{Finding: receipts.ClassExecuted, OutcomeClass: receipts.ClassExecuted}
	notExecuted := receipts.Payload{Finding: receipts.ClassNotExecuted, OutcomeClass: receipts.ClassNotExecuted}
	interrupted := draftOf(receipts.AttemptInterrupted, 11, receipts.Payload{Attempt: 1, Recoveries: 1, UnknownOpen: 1, OutcomeClass: receipts.ClassUnknown})
	for name, test := range map[string]struct {
		drafts        []receipts.Draft
		state, letter string
		unknown       int
		class         string
	}{
		"submitted":              {[]receipts.Draft{submit()}, receipts.StatePending, "", 0, ""},
		"started":                {[]receipts.Draft{submit(), start(1)}, receipts.StateRunning, "", 0, ""},
		"waits":                  {[]receipts.Draft{submit(), start(1), retry(1)}, receipts.StateScheduled, "", 0, ""},
		"again":                  {[]receipts.Draft{submit(), start(1), retry(1), start(2)}, receipts.StateRunning, "", 0, ""},
		"succeeds":               {[]receipts.Draft{submit(), start(1), draftOf(receipts.AttemptSucceeded, 11, receipts.Payload{Attempt: 1, OutcomeClass: receipts.ClassExecuted})}, receipts.StateSucceeded, "", 0, receipts.ClassExecuted},
		"interrupted":            {[]receipts.Draft{submit(), start(1), interrupted}, receipts.StateScheduled, "", 1, receipts.ClassUnknown},
		"a start keeps unknowns": {[]receipts.Draft{submit(), start(1), interrupted, start(2)}, receipts.StateRunning, "", 1, receipts.ClassUnknown},
		"dies":                   {[]receipts.Draft{submit(), start(1), die(1)}, receipts.StateDeadLettered, receipts.LetterOpen, 0, ""},
		"dies unstarted":         {[]receipts.Draft{submit(), die(0)}, receipts.StateDeadLettered, receipts.LetterOpen, 0, ""},
		"dies waiting":           {[]receipts.Draft{submit(), start(1), retry(1), die(2)}, receipts.StateDeadLettered, receipts.LetterOpen, 0, ""},
		"cancelled unstarted":    {[]receipts.Draft{submit(), draftOf(receipts.Cancelled, 1, receipts.Payload{})}, receipts.StateCancelled, "", 0, ""},
		"cancelled running":      {[]receipts.Draft{submit(), start(1), draftOf(receipts.Cancelled, 11, receipts.Payload{Attempt: 1, BudgetSpent: 1})}, receipts.StateCancelled, "", 0, ""},
		"cancelled waiting":      {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.Cancelled, 12, receipts.Payload{BudgetSpent: 1})}, receipts.StateCancelled, "", 0, ""},
		"discarded":              {[]receipts.Draft{submit(), start(1), discard(1)}, receipts.StateDiscarded, "", 0, ""},
		"discarded unstarted":    {[]receipts.Draft{submit(), discard(0)}, receipts.StateDiscarded, "", 0, ""},
		"discarded waiting":      {[]receipts.Draft{submit(), start(1), retry(1), discard(2)}, receipts.StateDiscarded, "", 0, ""},
		"activated":              {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{Pending: true}), draftOf(receipts.Activated, 10, receipts.Payload{}), start(1)}, receipts.StateRunning, "", 0, ""},
		"due later":              {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{NextRetryAt: at(10)}), start(1)}, receipts.StateRunning, "", 0, ""},
		"in time":                {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{ExpiresAt: at(11)}), start(1)}, receipts.StateRunning, "", 0, ""},
		"forked":                 {[]receipts.Draft{submit(), die(1), draftOf(receipts.ManualRetryRequested, 20, receipts.Payload{NewRun: runB})}, receipts.StateDeadLettered, receipts.LetterForked, 0, ""},
		"superseded":             {[]receipts.Draft{submit(), die(1), draftOf(receipts.Superseded, 20, receipts.Payload{})}, receipts.StateDeadLettered, receipts.LetterSuperseded, 0, ""},
		"paid though purged":     {[]receipts.Draft{submit(), die(1), draftOf(receipts.Purged, 20, receipts.Payload{}), draftOf(receipts.Reconciled, 30, executed)}, receipts.StateDeadLettered, receipts.LetterPurged, 0, receipts.ClassExecuted},
		"paid though freed":      {[]receipts.Draft{submit(), die(1), draftOf(receipts.ReservationFreed, 20, receipts.Payload{Freed: 5}), draftOf(receipts.Reconciled, 30, executed)}, receipts.StateDeadLettered, receipts.LetterReconciled, 0, receipts.ClassExecuted},
		"paid though cancelled":  {[]receipts.Draft{submit(), draftOf(receipts.Cancelled, 20, receipts.Payload{}), draftOf(receipts.Reconciled, 30, executed)}, receipts.StateCancelled, "", 0, receipts.ClassExecuted},
		"paid though forked":     {[]receipts.Draft{submit(), die(1), draftOf(receipts.ManualRetryRequested, 20, receipts.Payload{NewRun: runB}), draftOf(receipts.Reconciled, 30, executed)}, receipts.StateDeadLettered, receipts.LetterForked, 0, receipts.ClassExecuted},
		"paid though superseded": {[]receipts.Draft{submit(), die(1), draftOf(receipts.Superseded, 20, receipts.Payload{}), draftOf(receipts.Reconciled, 30, executed)}, receipts.StateDeadLettered, receipts.LetterSuperseded, 0, receipts.ClassExecuted},
		"freed":                  {[]receipts.Draft{submit(), die(1), draftOf(receipts.ReservationFreed, 20, receipts.Payload{Freed: 5})}, receipts.StateDeadLettered, receipts.LetterReconciled, 0, ""},
		"freed after a purge":    {[]receipts.Draft{submit(), die(1), draftOf(receipts.Purged, 20, receipts.Payload{}), draftOf(receipts.ReservationFreed, 30, receipts.Payload{Freed: 5})}, receipts.StateDeadLettered, receipts.LetterPurged, 0, ""},
		"a cancelled fork freed": {[]receipts.Draft{submit(), draftOf(receipts.Cancelled, 20, receipts.Payload{ReservationKept: true}), draftOf(receipts.ReservationFreed, 30, receipts.Payload{Freed: 5})}, receipts.StateCancelled, "", 0, ""},
		"purged":                 {[]receipts.Draft{submit(), die(1), draftOf(receipts.Purged, 20, receipts.Payload{})}, receipts.StateDeadLettered, receipts.LetterPurged, 0, ""},
		"expired":                {[]receipts.Draft{submit(), die(1), draftOf(receipts.RetentionExpired, 20, receipts.Payload{})}, receipts.StateDeadLettered, receipts.LetterPurged, 0, ""},
		"letter found executed":  {[]receipts.Draft{submit(), die(1), draftOf(receipts.Reconciled, 20, executed)}, receipts.StateDeadLettered, receipts.LetterReconciled, 0, receipts.ClassExecuted},
		"letter found untouched": {[]receipts.Draft{submit(), start(1), interrupted, draftOf(receipts.DeadLettered, 20, receipts.Payload{Recoveries: 1, DeadLetteredAt: at(20), UnknownOpen: 1, OutcomeClass: receipts.ClassUnknown}),
			draftOf(receipts.Reconciled, 30, notExecuted)}, receipts.StateDeadLettered, receipts.LetterOpen, 0, receipts.ClassNotExecuted},
		"waiting run found executed":  {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.Reconciled, 20, executed)}, receipts.StateSucceeded, "", 0, receipts.ClassExecuted},
		"waiting run found untouched": {[]receipts.Draft{submit(), start(1), interrupted, draftOf(receipts.Reconciled, 20, notExecuted)}, receipts.StateScheduled, "", 0, receipts.ClassNotExecuted},
		"running run ends by itself":  {[]receipts.Draft{submit(), start(1), draftOf(receipts.Reconciled, 20, executed)}, receipts.StateRunning, "", 0, receipts.ClassExecuted},
		"late answer tells":           {[]receipts.Draft{submit(), start(1), interrupted, draftOf(receipts.AnsweredLate, 20, receipts.Payload{Attempt: 1, OutcomeClass: receipts.ClassNotExecuted})}, receipts.StateScheduled, "", 0, receipts.ClassNotExecuted},
		"late answer tells nothing":   {[]receipts.Draft{submit(), start(1), interrupted, draftOf(receipts.AnsweredLate, 20, receipts.Payload{Attempt: 1})}, receipts.StateScheduled, "", 1, receipts.ClassUnknown},
		"receipts without a move": {[]receipts.Draft{submit(), start(1), interrupted, draftOf(receipts.HoldPlaced, 12, receipts.Payload{}), draftOf(receipts.HoldReleased, 12, receipts.Payload{}), draftOf(receipts.Replayed, 12, receipts.Payload{}), draftOf(receipts.Marked, 12, receipts.Payload{}), draftOf(receipts.RetentionEnding, 12, receipts.Payload{}),
			draftOf(receipts.ConservationBreach, 12, receipts.Payload{}), draftOf(receipts.Refused, 12, receipts.Payload{}), draftOf(receipts.PolicyChanged, 12, receipts.Payload{}), draftOf(receipts.BreakerOpened, 12, receipts.Payload{}),
			draftOf(receipts.BreakerReleased, 12, receipts.Payload{}), draftOf(receipts.PeopleChanged, 12, receipts.Payload{People: 1}), draftOf(receipts.OutOfBandChangeDetected, 12, receipts.Payload{})}, receipts.StateScheduled, "", 1, receipts.ClassUnknown},
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
	for _, s := range receipts.KnownSubtypes() {
		if _, err := folded(t, submit(), draftOf(s, 1, receipts.Payload{})); err != nil && strings.Contains(err.Error(), "does not know") {
			t.Error(err)
		}
	}
}

func TestFoldRefusesOrdersThatCannotBe(t *testing.T) {
	t.Parallel()
	of := func(run receipts.RunID, d receipts.Draft) receipts.Draft {
		d.Run = run
		return d
	}
	cancel := draftOf(receipts.Cancelled, 12, receipts.Payload{Attempt: 1})
	ask := draftOf(receipts.CancelRequested, 11, receipts.Payload{Reason: "sent in error"})
	succeed := draftOf(receipts.AttemptSucceeded, 12, receipts.Payload{Attempt: 1})
	for name, test := range map[string]struct {
		drafts []receipts.Draft // the last one is illegal
		part   string
	}{
		"submitted twice":         {[]receipts.Draft{submit(), submit()}, "submitted before"},
		"submitted without run":   {[]receipts.Draft{of(receipts.RunID{}, submit())}, "run is not given"},
		"fork of nothing":         {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{ParentRun: runB})}, "never submitted"},
		"never submitted":         {[]receipts.Draft{start(1)}, "never submitted"},
		"another never submitted": {[]receipts.Draft{submit(), of(runB, start(1))}, "never submitted"},
		"hold of nothing":         {[]receipts.Draft{draftOf(receipts.HoldPlaced, 0, receipts.Payload{})}, "never submitted"},
		"cancel asked of none":    {[]receipts.Draft{submit(), ask}, "while the run is pending"},
		"cancel asked twice":      {[]receipts.Draft{submit(), start(1), ask, ask}, "a cancel was asked for before, by "},
		"starts while running":    {[]receipts.Draft{submit(), start(1), start(2)}, "while the run is running"},
		"starts after the end":    {[]receipts.Draft{submit(), start(1), die(1), start(2)}, "while the run is dead_lettered"},
		"number skipped":          {[]receipts.Draft{submit(), start(2)}, "attempt 2 starts after attempt 0"},
		"number repeated":         {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.AttemptStarted, 20, receipts.Payload{Attempt: 1})}, "attempt 1 starts after attempt 1"},
		"too early":               {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.AttemptStarted, 14, receipts.Payload{Attempt: 2})}, "1s before its time"},
		"early at first":          {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{NextRetryAt: at(11)}), start(1)}, "1s before its time"},
		"not activated":           {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{Pending: true}), start(1)}, "before the run is activated"},
		"activated twice":         {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{Pending: true}), draftOf(receipts.Activated, 1, receipts.Payload{}), draftOf(receipts.Activated, 2, receipts.Payload{})}, "activated while the run is pending"},
		"activated unasked":       {[]receipts.Draft{submit(), draftOf(receipts.Activated, 1, receipts.Payload{})}, "activated while the run is pending"},
		"before its activation":   {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{Pending: true}), draftOf(receipts.Activated, 12, receipts.Payload{}), start(1)}, "2s before its time"},
		"starts when expired":     {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{ExpiresAt: at(10)}), start(1)}, "after the run expired"},
		"starts when discarded":   {[]receipts.Draft{submit(), start(1), discard(1), start(2)}, "while the run is discarded"},
		"discards money":          {[]receipts.Draft{draftOf(receipts.Submitted, 0, receipts.Payload{OperationKey: "k"}), start(1), discard(1)}, "moves money"},
		"fork of the discarded":   {[]receipts.Draft{submit(), start(1), discard(1), draftOf(receipts.ManualRetryRequested, 12, receipts.Payload{NewRun: runB})}, "the run is discarded"},
		"retry unstarted":         {[]receipts.Draft{submit(), retry(1)}, "no attempt is open"},
		"retry without a time":    {[]receipts.Draft{submit(), start(1), draftOf(receipts.RetryScheduled, 11, receipts.Payload{Attempt: 1})}, "next_retry_at"},
		"success unstarted":       {[]receipts.Draft{submit(), succeed}, "no attempt is open"},
		"interrupted waiting":     {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.AttemptInterrupted, 12, receipts.Payload{Attempt: 1, BudgetSpent: 1})}, "no attempt is open"},
		"two endings":             {[]receipts.Draft{submit(), start(1), retry(1), retry(1)}, "no attempt is open"},
		"success after success":   {[]receipts.Draft{submit(), start(1), succeed, succeed}, "no attempt is open"},
		"cancelled after success": {[]receipts.Draft{submit(), start(1), succeed, cancel}, "no attempt is open"},
		"dies twice":              {[]receipts.Draft{submit(), start(1), die(1), die(1)}, "no attempt is open"},
		"dies after success":      {[]receipts.Draft{submit(), start(1), succeed, die(1)}, "no attempt is open"},
		"death without a time":    {[]receipts.Draft{submit(), draftOf(receipts.DeadLettered, 1, receipts.Payload{})}, "dead_lettered_at"},
		"ends another attempt":    {[]receipts.Draft{submit(), start(1), retry(1), start(2), retry(1)}, "ends attempt 1 while attempt 2"},
		"ends none by name":       {[]receipts.Draft{submit(), start(1), draftOf(receipts.Cancelled, 11, receipts.Payload{})}, "ends attempt 0 while attempt 1"},
		"budget shrinks":          {[]receipts.Draft{submit(), start(1), retry(1), start(2), draftOf(receipts.AttemptInterrupted, 21, receipts.Payload{Attempt: 2, Recoveries: 1})}, "fall to 0 and 1"},
		"unknown below none":      {[]receipts.Draft{submit(), start(1), draftOf(receipts.AttemptSucceeded, 11, receipts.Payload{Attempt: 1, UnknownOpen: -1})}, "unknown_open is -1"},
		"late before its end":     {[]receipts.Draft{submit(), start(1), draftOf(receipts.AnsweredLate, 12, receipts.Payload{Attempt: 1})}, "has not ended"},
		"late without attempt":    {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.AnsweredLate, 12, receipts.Payload{})}, "attempt 0"},
		"late beyond the last":    {[]receipts.Draft{submit(), start(1), retry(1), draftOf(receipts.AnsweredLate, 12, receipts.Payload{Attempt: 2})}, "attempt 2"},
		"fork of the living":      {[]receipts.Draft{submit(), draftOf(receipts.ManualRetryRequested, 1, receipts.Payload{NewRun: runB})}, "no letter is open: the run is pending"},
		"fork twice":              {[]receipts.Draft{submit(), die(1), draftOf(receipts.ManualRetryRequested, 12, receipts.Payload{NewRun: runB}), draftOf(receipts.ManualRetryRequested, 12, receipts.Payload{NewRun: runB})}, "the letter is forked"},
		"fork into nothing":       {[]receipts.Draft{submit(), die(1), draftOf(receipts.ManualRetryRequested, 12, receipts.Payload{})}, "new_run"},
		"superseded alive":        {[]receipts.Draft{submit(), draftOf(receipts.Superseded, 1, receipts.Payload{})}, "no letter is open"},
		"purged after fork":       {[]receipts.Draft{submit(), die(1), draftOf(receipts.ManualRetryRequested, 12, receipts.Payload{NewRun: runB}), draftOf(receipts.Purged, 13, receipts.Payload{})}, "the letter is forked"},
		"expired twice":           {[]receipts.Draft{submit(), die(1), draftOf(receipts.RetentionExpired, 12, receipts.Payload{}), draftOf(receipts.RetentionExpired, 13, receipts.Payload{})}, "the letter is purged"},
		"freed while it lives":    {[]receipts.Draft{submit(), draftOf(receipts.ReservationFreed, 1, receipts.Payload{Freed: 5})}, "nothing to free: the run is pending"},
		"freed while it runs":     {[]receipts.Draft{submit(), start(1), draftOf(receipts.ReservationFreed, 11, receipts.Payload{Freed: 5})}, "nothing to free: the run is running"},
		"freed after success":     {[]receipts.Draft{submit(), start(1), succeed, draftOf(receipts.ReservationFreed, 13, receipts.Payload{Freed: 5})}, "nothing to free: the run is succeeded"},
		"freed while unknown": {[]receipts.Draft{submit(), start(1), draftOf(receipts.DeadLettered, 11, receipts.Payload{Attempt: 1, DeadLetteredAt: at(11), UnknownOpen: 1, OutcomeClass: receipts.ClassUnknown}),
			draftOf(receipts.ReservationFreed, 12, receipts.Payload{Freed: 5})}, "1 attempts are unknown"},
		"finding unclear":       {[]receipts.Draft{submit(), draftOf(receipts.Reconciled, 1, receipts.Payload{Finding: receipts.ClassUnknown})}, "finding \"unknown\""},
		"finding after success": {[]receipts.Draft{submit(), start(1), succeed, draftOf(receipts.Reconciled, 13, receipts.Payload{Finding: receipts.ClassExecuted})}, "nothing to reconcile"},
		"not executed, freed":   {[]receipts.Draft{submit(), die(1), draftOf(receipts.ReservationFreed, 12, receipts.Payload{Freed: 5}), draftOf(receipts.Reconciled, 13, receipts.Payload{Finding: receipts.ClassNotExecuted})}, "nothing to reconcile"},
		"found twice":           {[]receipts.Draft{submit(), die(1), draftOf(receipts.Reconciled, 12, receipts.Payload{Finding: receipts.ClassExecuted, OutcomeClass: receipts.ClassExecuted}), draftOf(receipts.Reconciled, 13, receipts.Payload{Finding: receipts.ClassExecuted})}, "nothing to reconcile"},
		"not executed, forked":  {[]receipts.Draft{submit(), die(1), draftOf(receipts.ManualRetryRequested, 12, receipts.Payload{NewRun: runB}), draftOf(receipts.Reconciled, 13, receipts.Payload{Finding: receipts.ClassNotExecuted})}, "nothing to reconcile"},
		"finding after purge":   {[]receipts.Draft{submit(), die(1), draftOf(receipts.Purged, 12, receipts.Payload{}), draftOf(receipts.Reconciled, 13, receipts.Payload{Finding: receipts.ClassNotExecuted})}, "nothing to reconcile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := folded(t, test.drafts[:len(test.drafts)-1]...); err != nil {
				t.Fatalf("illegal before its last: %v", err)
			}
			h, err := folded(t, test.drafts...)
			var illegal *receipts.Illegal
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
	for name, bad := range map[string][]receipts.Receipt{
		"tail":         rs[1:],
		"gap":          append(append([]receipts.Receipt{}, rs[:2]...), rs[3:]...),
		"another case": append(append([]receipts.Receipt{}, rs[:2]...), other[2:]...),
	} {
		if _, err := receipts.Fold(bad); err == nil {
			t.Errorf("%s is folded", name)
		}
	}
	rs[2].Body = []byte("{}")
	_, err := receipts.Fold(rs)
	wantError(t, err, fmt.Sprintf("%s.3", testCase))
}
