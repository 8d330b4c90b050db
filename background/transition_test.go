package background

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
)

var (
	oldToken       = uuid.UUID{1}
	newToken       = uuid.UUID{2}
	thisTransition = uuid.UUID{3}
)

// runIn is a run in each state, as its journal would have it.
func runIn(s State) Run {
	r := Run{State: s, Attempt: 2, Token: oldToken, DueAt: noon.Add(-time.Second), FirstSentAt: noon.Add(-time.Minute), Operation: [32]byte{1}}
	switch s {
	case Pending:
		r.Attempt, r.Token, r.FirstSentAt = 0, Token{}, time.Time{}
	case DeadLettered:
		r.Letter, r.DeadAt, r.Reason = LetterOpen, noon.Add(-time.Second), ReasonFinal
	}
	r.OutstandingCalls = []int{r.Attempt}
	return r
}

// applied returns the run after a transition.
func applied(tr *Transition, now Run) (Run, error) {
	err := tr.Apply(&now)
	return now, err
}

func TestApplyEveryStateWithEveryEvent(t *testing.T) {
	t.Parallel()
	next := noon.Add(time.Second)
	events := map[receipts.Subtype]Transition{
		receipts.AttemptStarted:     {Token: newToken},
		receipts.AttemptSucceeded:   {Result: paid},
		receipts.RetryScheduled:     {Result: refused, Charge: ChargeAttempt, NextRetryAt: next},
		receipts.AttemptInterrupted: {Result: vague, Charge: ChargeRecovery, NextRetryAt: next},
		receipts.DeadLettered:       {Result: refused, Charge: ChargeAttempt, Reason: ReasonFinal},
		receipts.Discarded:          {Result: refused, Charge: ChargeAttempt, Reason: ReasonFinal},
		receipts.Activated:          {},
		receipts.Cancelled:          {},
		receipts.Reconciled:         {Result: paid},
		receipts.AnsweredLate:       {Result: refused},
	}
	// The result of each cell; a state that is not listed is refused with ErrConflict.
	want := map[receipts.Subtype]map[State]any{
		receipts.AttemptStarted:     {Pending: Running, Scheduled: Running, DeadLettered: ErrDeadLettered},
		receipts.AttemptSucceeded:   {Running: Succeeded},
		receipts.RetryScheduled:     {Running: Scheduled},
		receipts.AttemptInterrupted: {Running: Scheduled},
		receipts.DeadLettered:       {Running: DeadLettered, Pending: DeadLettered, Scheduled: DeadLettered},
		receipts.Discarded: {Running: errDiscardsMoney, Pending: errDiscardsMoney, Scheduled: errDiscardsMoney, Succeeded: errDiscardsMoney,
			DeadLettered: errDiscardsMoney, Cancelled: errDiscardsMoney},
		receipts.Cancelled:  {Running: Cancelled, Pending: Cancelled, Scheduled: Cancelled},
		receipts.Reconciled: {Pending: Succeeded, Scheduled: Succeeded, DeadLettered: DeadLettered, Cancelled: Cancelled},
		receipts.AnsweredLate: {Pending: Pending, Scheduled: Scheduled, Running: Running, Succeeded: Succeeded,
			DeadLettered: DeadLettered, Cancelled: Cancelled},
	}
	for event, m := range events {
		for _, s := range []State{Pending, Running, Scheduled, Succeeded, DeadLettered, Cancelled} {
			t.Run(fmt.Sprintf("%s on %s", event, s), func(t *testing.T) {
				t.Parallel()
				m := m
				m.Subtype, m.At, m.ID, m.Run = event, noon, thisTransition, runIn(s)
				got, err := applied(&m, runIn(s))
				switch w := want[event][s].(type) {
				case State:
					if err != nil || got.State != w || got.LastTransition != thisTransition {
						t.Errorf("got %+v, %v; want %s", got, err, w)
					}
				case error:
					checkRefused(t, runIn(s), got, err, w)
				default:
					checkRefused(t, runIn(s), got, err, ErrConflict)
				}
			})
		}
	}
}

func checkRefused(t *testing.T, before, got Run, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Error("a refused transition changed the run: ", diff)
	}
}

func TestApplyGuards(t *testing.T) {
	t.Parallel()
	retry := Transition{Subtype: receipts.RetryScheduled, Result: refused, Charge: ChargeAttempt, At: noon, NextRetryAt: noon}
	deadLettered := Transition{Subtype: receipts.DeadLettered, Reason: ReasonOutcomeUnknown, At: noon}
	changed := func(s State, f func(*Run)) Run { r := runIn(s); f(&r); return r }
	for name, c := range map[string]struct {
		m    Transition
		seen Run
		now  Run
		want error
	}{
		"not due": {Transition{Subtype: receipts.AttemptStarted, At: noon}, runIn(Scheduled),
			changed(Scheduled, func(r *Run) { r.DueAt = noon.Add(1) }), ErrNotDue},
		"due this moment": {Transition{Subtype: receipts.AttemptStarted, At: noon}, Run{},
			changed(Scheduled, func(r *Run) { r.DueAt = noon }), nil},
		"another attempt":  {retry, runIn(Running), changed(Running, func(r *Run) { r.Attempt++ }), ErrConflict},
		"another token":    {retry, runIn(Running), changed(Running, func(r *Run) { r.Token = newToken }), ErrConflict},
		"cancel requested": {retry, runIn(Running), changed(Running, func(r *Run) { r.CancelRequested = true }), ErrConflict},
		"cancel was known": {retry, changed(Running, func(r *Run) { r.CancelRequested = true }),
			changed(Running, func(r *Run) { r.CancelRequested = true }), nil},
		"cancel of what was claimed since":                                 {Transition{Subtype: receipts.Cancelled}, runIn(Scheduled), changed(Running, func(r *Run) { r.Attempt++ }), ErrConflict},
		"cancel that an attempt ends with, of a run that waits again":      {Transition{Subtype: receipts.Cancelled}, runIn(Running), runIn(Scheduled), ErrConflict},
		"dead letter that an attempt ends with, of a run that waits again": {deadLettered, runIn(Running), runIn(Scheduled), ErrConflict},
		"dead letter of a run cancelled since":                             {deadLettered, runIn(Scheduled), runIn(Cancelled), ErrConflict},
		"late answer that tells nothing, of a run that paid": {Transition{Subtype: receipts.AnsweredLate, Result: vague},
			changed(Running, func(r *Run) { r.Attempt = 1 }), changed(Running, func(r *Run) { r.Class = Executed }), ErrConflict},
		"cancel of an unknown": {Transition{Subtype: receipts.Cancelled}, runIn(Scheduled),
			changed(Scheduled, func(r *Run) { r.Class = Unknown }), ErrReconcileFirst},
		"cancel while another run is unknown": {Transition{Subtype: receipts.Cancelled}, runIn(Pending),
			changed(Pending, func(r *Run) { r.UnknownOpen = 1 }), ErrReconcileFirst},
		"dead letter of a run attempted since": {deadLettered, runIn(Scheduled), changed(Scheduled, func(r *Run) { r.Attempt++ }), ErrConflict},
		"dead letter of a run resolved since": {deadLettered, changed(Scheduled, func(r *Run) { r.Class = Unknown }),
			changed(Scheduled, func(r *Run) { r.Class = NotExecuted }), ErrConflict},
		"finding of a run that was called since": {Transition{Subtype: receipts.Reconciled, Result: refused}, runIn(Scheduled), changed(Scheduled, func(r *Run) { r.Attempt++ }), ErrConflict},
		"claim of an expired run": {Transition{Subtype: receipts.AttemptStarted, At: noon}, Run{},
			changed(Scheduled, func(r *Run) { r.ExpiresAt = noon }), ErrExpired},
		"claim in time": {Transition{Subtype: receipts.AttemptStarted, At: noon}, Run{},
			changed(Scheduled, func(r *Run) { r.ExpiresAt = noon.Add(1) }), nil},
		"delivery of a remote run": {Transition{Subtype: receipts.AttemptStarted, At: noon}, Run{},
			changed(Pending, func(r *Run) { r.Remote = true }), ErrConflict},
		"fetch of a remote run": {Transition{Subtype: receipts.AttemptStarted, At: noon, Lease: &lease.Lease{}}, Run{},
			changed(Pending, func(r *Run) { r.Remote = true }), nil},
		"fetch of a run that is delivered": {Transition{Subtype: receipts.AttemptStarted, At: noon, Lease: &lease.Lease{}}, Run{}, runIn(Pending), ErrConflict},
		"fetch before the activation": {Transition{Subtype: receipts.AttemptStarted, At: noon, Lease: &lease.Lease{}}, Run{},
			changed(Pending, func(r *Run) { r.Remote, r.DueAt = true, NeverDue }), ErrNotDue},
		"activation": {Transition{Subtype: receipts.Activated, At: noon}, runIn(Pending),
			changed(Pending, func(r *Run) { r.DueAt = NeverDue }), nil},
		"activation of a run that has ended": {Transition{Subtype: receipts.Activated, At: noon}, runIn(Pending),
			changed(Cancelled, func(r *Run) { r.DueAt = NeverDue }), ErrConflict},
		"a run without money is discarded": {Transition{Subtype: receipts.Discarded, Result: refused}, runIn(Running),
			changed(Running, func(r *Run) { r.Operation = [32]byte{} }), nil},
		"a waiting run without money is discarded": {Transition{Subtype: receipts.Discarded}, runIn(Scheduled),
			changed(Scheduled, func(r *Run) { r.Operation = [32]byte{} }), nil},
		"a run that was attempted since is discarded": {Transition{Subtype: receipts.Discarded}, runIn(Scheduled),
			changed(Scheduled, func(r *Run) { r.Operation = [32]byte{}; r.Attempt++ }), ErrConflict},
		"a forked dead letter found paid": {Transition{Subtype: receipts.Reconciled, Result: paid}, runIn(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter = LetterForked }), nil},
		"a forked dead letter found paid again": {Transition{Subtype: receipts.Reconciled, Result: paid}, runIn(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter, r.Class = LetterForked, Executed }), nil}, // the family compares the sums
		"a forked dead letter without money found paid again": {Transition{Subtype: receipts.Reconciled, Result: paid}, runIn(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter, r.Class, r.Operation = LetterForked, Executed, [32]byte{} }), ErrConflict},
		"a forked dead letter found unpaid": {Transition{Subtype: receipts.Reconciled, Result: refused}, runIn(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter = LetterForked }), ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.m.Run = c.seen
			got, err := applied(&c.m, c.now)
			if c.want != nil {
				checkRefused(t, c.now, got, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := applied(&Transition{Subtype: receipts.Submitted, Run: runIn(Running)}, runIn(Running)); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("an event that ends no attempt: %v", err)
	}
}

func TestClaimCountsTheAttemptAndKeepsTheFirstSending(t *testing.T) {
	t.Parallel()
	m := Transition{ID: thisTransition, Subtype: receipts.AttemptStarted, At: noon, Token: newToken}
	first, err := applied(&m, runIn(Pending))
	if err != nil || first.Attempt != 1 || first.Token != newToken || !first.FirstSentAt.Equal(noon) {
		t.Errorf("first %+v, %v", first, err)
	}
	later, err := applied(&m, runIn(Scheduled))
	if err != nil || later.Attempt != 3 || !later.FirstSentAt.Equal(noon.Add(-time.Minute)) {
		t.Errorf("later %+v, %v", later, err)
	}
}

func TestEndsSpendTheirBudgetAndKeepTheFailure(t *testing.T) {
	t.Parallel()
	for spend, want := range map[BudgetCharge][2]int{ChargeNothing: {0, 0}, ChargeAttempt: {1, 0}, ChargeRecovery: {0, 1}} {
		m := Transition{Run: runIn(Running), Subtype: receipts.RetryScheduled, Charge: spend, Result: refused, NextRetryAt: noon}
		got, err := applied(&m, runIn(Running))
		if err != nil || got.BudgetSpent != want[0] || got.Recoveries != want[1] || got.Failure != failure || !got.DueAt.Equal(noon) {
			t.Errorf("spend %d: %+v, %v", spend, got, err)
		}
	}
	m := Transition{Run: runIn(Running), Subtype: receipts.DeadLettered, At: noon, Result: declined, Reason: ReasonFinal}
	if got, err := applied(&m, runIn(Running)); err != nil || got.Letter != LetterOpen || !got.DeadAt.Equal(noon) || got.Reason != ReasonFinal {
		t.Errorf("dead letter: %+v, %v", got, err)
	}
}

// What a remote worker returned is kept, what a function of the process returned is not.
func TestOnlyRemoteRunsKeepAnOutput(t *testing.T) {
	t.Parallel()
	for remote, want := range map[bool]string{true: `{"a":1}`, false: ""} {
		run := runIn(Running)
		run.Remote = remote
		after, err := applied(&Transition{Run: run, Subtype: receipts.AttemptSucceeded, Result: Result{Class: Executed, Output: []byte(`{"a":1}`)}}, run)
		if err != nil || after.State != Succeeded || string(after.Output) != want {
			t.Errorf("remote %v: %s %q, %v", remote, after.State, after.Output, err)
		}
	}
}

func TestMergeOutcome(t *testing.T) {
	t.Parallel()
	running := func(c Class, open int) Run { r := runIn(Running); r.Class, r.UnknownOpen = c, open; return r }
	ended := receipts.RetryScheduled
	for name, c := range map[string]struct {
		now  Run
		m    Transition
		want Class
		open int
	}{
		"refused":                      {running("", 0), Transition{Subtype: ended, Result: refused}, NotExecuted, 0},
		"unknown":                      {running("", 0), Transition{Subtype: ended, Result: vague}, Unknown, 1},
		"unknown again":                {running(Unknown, 1), Transition{Subtype: ended, Result: vague}, Unknown, 2},
		"refused clears no unknown":    {running(Unknown, 1), Transition{Subtype: ended, Result: refused}, Unknown, 1},
		"executed clears all":          {running(Unknown, 2), Transition{Subtype: receipts.AttemptSucceeded, Result: paid}, Executed, 0},
		"looked up: executed":          {running(Unknown, 2), Transition{Subtype: receipts.AttemptSucceeded, Result: vague, Lookup: Executed}, Executed, 0},
		"looked up: not executed":      {running(Unknown, 2), Transition{Subtype: receipts.DeadLettered, Result: vague, Lookup: NotExecuted}, NotExecuted, 0},
		"looked up: unknown":           {running(Unknown, 2), Transition{Subtype: receipts.DeadLettered, Result: vague, Lookup: Unknown}, Unknown, 3},
		"late: executed":               {running(Unknown, 1), Transition{Subtype: receipts.AnsweredLate, Result: paid}, Executed, 0},
		"late: refused clears nothing": {running(Unknown, 1), Transition{Subtype: receipts.AnsweredLate, Result: refused}, Unknown, 1},
		"late: refused, none unknown":  {running(NotExecuted, 0), Transition{Subtype: receipts.AnsweredLate, Result: refused}, NotExecuted, 0},
		"late: unknown adds nothing":   {running(Unknown, 1), Transition{Subtype: receipts.AnsweredLate, Result: vague}, Unknown, 1},
		"ended without a call":         {running("", 0), Transition{Subtype: receipts.DeadLettered, Reason: ReasonExpired}, "", 0},
		"refused after an unknown that another run of the case resolved": {running(Unknown, 0), Transition{Subtype: ended, Result: refused}, Unknown, 0},
		"executed stays, refused": {running(Executed, 0), Transition{Subtype: ended, Result: refused}, Executed, 0},
		"executed stays, unknown": {running(Executed, 0), Transition{Subtype: ended, Result: vague}, Executed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.m.Run = c.now
			got, err := applied(&c.m, c.now)
			if err != nil || got.Class != c.want || got.UnknownOpen != c.open {
				t.Errorf("class %q, %d open, %v; want %q, %d", got.Class, got.UnknownOpen, err, c.want, c.open)
			}
		})
	}
}

func TestReconcileClearsOrCloses(t *testing.T) {
	t.Parallel()
	letter := runIn(DeadLettered)
	letter.Class, letter.UnknownOpen = Unknown, 1
	cleared, err := applied(&Transition{Subtype: receipts.Reconciled, Run: letter, Result: refused}, letter)
	if err != nil || cleared.Letter != LetterOpen || cleared.Class != NotExecuted || cleared.UnknownOpen != 0 {
		t.Errorf("not executed: %+v, %v", cleared, err)
	}
	closed, err := applied(&Transition{Subtype: receipts.Reconciled, Run: letter, Result: paid}, letter)
	if err != nil || closed.Letter != LetterReconciled || closed.IsActive() {
		t.Errorf("executed: %+v, %v", closed, err)
	}
}

// A finding says that the call was executed, or that it was not. Anything else, as of a plan that a newer
// version made, must not be taken for either.
func TestAFindingOfAnotherClassIsRefused(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Pending, Scheduled, DeadLettered} {
		run := runIn(state)
		run.Class, run.UnknownOpen = Unknown, 1
		for _, class := range []Class{NoClass, Unknown, "executed_in_part"} {
			finding := Transition{Subtype: receipts.Reconciled, Run: run, Result: Result{Class: class}}
			merged := run
			if finding.mergeOutcome(&merged); merged.Class != Unknown || merged.UnknownOpen == 0 {
				t.Errorf("%s, found %q: it is taken for %s", state, class, merged.Class)
			}
			after, err := applied(&finding, run)
			if err == nil || WriteOutcomeKnown(err) || !cmp.Equal(after, run) {
				t.Errorf("%s, found %q: %+v, %v", state, class, after, err)
			}
		}
	}
}

// Each call is identified by its attempt number: the answer of one says nothing about another.
func TestACallIsOutstandingUntilItsOwnAnswer(t *testing.T) {
	t.Parallel()
	run := runIn(Running)
	run.OutstandingCalls = nil
	ends := func(attempt int) Run {
		run.Attempt, run.State = attempt, Running
		after, err := applied(&Transition{ID: thisTransition, Run: run, Subtype: receipts.RetryScheduled, Result: vague, NextRetryAt: noon, LeavesCallOutstanding: true}, run)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	for _, attempt := range []int{64, 1, 63, 127} {
		run = ends(attempt)
	}
	if !slices.Equal(run.OutstandingCalls, []int{1, 63, 64, 127}) {
		t.Fatalf("outstanding %v", run.OutstandingCalls)
	}
	before := run
	answer := func(attempt int, res Result) (Run, error) {
		seen := run
		seen.Attempt = attempt
		return applied(&Transition{ID: thisTransition, Run: seen, Subtype: receipts.AnsweredLate, Result: res}, run)
	}
	for _, c := range []struct {
		attempt int
		left    []int
	}{{64, []int{1, 63, 127}}, {1, []int{63, 127}}, {127, []int{63}}, {63, nil}} {
		after, err := answer(c.attempt, refused)
		if err != nil || !slices.Equal(after.OutstandingCalls, c.left) {
			t.Errorf("attempt %d: %v, %v", c.attempt, after.OutstandingCalls, err)
		}
		run = after
		if _, err := answer(c.attempt, refused); !errors.Is(err, ErrConflict) {
			t.Errorf("attempt %d answered again: %v", c.attempt, err)
		}
	}
	if run.OutstandingCalls != nil || run.HasOutstandingCall() || !slices.Equal(before.OutstandingCalls, []int{1, 63, 64, 127}) {
		t.Errorf("outstanding %v, in the copy %v", run.OutstandingCalls, before.OutstandingCalls)
	}
}

func TestALateAnswerThatPaidIsRecordedThoughNobodyAwaitsIt(t *testing.T) {
	t.Parallel()
	run := runIn(Running)
	run.OutstandingCalls, run.Class, run.UnknownOpen = []int{1}, Unknown, 1
	late := Transition{ID: thisTransition, Run: run, Subtype: receipts.AnsweredLate, Result: paid}
	after, err := applied(&late, run)
	if err != nil || after.Class != Executed || after.UnknownOpen != 0 || !slices.Equal(after.OutstandingCalls, []int{1}) {
		t.Errorf("%+v, %v", after, err)
	}
	after.LastTransition = TransitionID(newToken) // something else happened since
	if _, err := applied(&late, after); err != nil {
		t.Errorf("the family does not get to compare the sums: %v", err)
	}
	after.Operation = [32]byte{}
	if _, err := applied(&late, after); !errors.Is(err, ErrConflict) {
		t.Errorf("recorded again, of a run that moves no money: %v", err)
	}
}

func TestARunWithTooManyOutstandingCallsIsNotClaimed(t *testing.T) {
	t.Parallel()
	run := runIn(Scheduled)
	run.OutstandingCalls = nil
	for n := range MaxOutstandingCalls {
		run.addOutstandingCall(n + 1)
	}
	claim := Transition{ID: thisTransition, Subtype: receipts.AttemptStarted, At: noon, Token: newToken}
	got, err := applied(&claim, run)
	checkRefused(t, run, got, err, ErrTooManyOutstandingCalls)
	run.removeOutstandingCall(3)
	if got, err := applied(&claim, run); err != nil || got.State != Running {
		t.Errorf("%+v, %v", got, err)
	}
}

// The reduced form of an end says what it reported of the money.
func TestTheReducedFormKeepsWhatIsKnownOfTheMoney(t *testing.T) {
	t.Parallel()
	for form := range mostReduced + 1 {
		for _, c := range []struct{ answered, lookup, reported, class Class }{
			{NotExecuted, Executed, Executed, Unknown}, {NotExecuted, NotExecuted, NotExecuted, NotExecuted}, {Unknown, "", Unknown, Unknown}, {Executed, "", Executed, Unknown},
		} {
			tr := Transition{Subtype: receipts.RetryScheduled, Lookup: c.lookup, Result: Result{Class: c.answered}}
			if got := tr.reduced(thisTransition, form, errors.New("too long")); got.Result.Class != c.class || got.Result.Failure.Code != string(c.reported) {
				t.Errorf("form %d, %s, looked up %q: %+v", form, c.answered, c.lookup, got.Result)
			}
		}
	}
}

// A run occupies its case while it lives and while its dead letter is open.
func TestARunIsActiveUntilItsLetterIsClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run  Run
		want bool
	}{
		{runIn(Pending), true}, {runIn(Running), true}, {runIn(Scheduled), true}, {runIn(DeadLettered), true},
		{runIn(Succeeded), false}, {runIn(Cancelled), false}, {Run{State: DeadLettered, Letter: LetterForked}, false},
	} {
		if c.run.IsActive() != c.want {
			t.Errorf("%s %q: active %v", c.run.State, c.run.Letter, !c.want)
		}
	}
}

// Only the newest claim of a run may decide again how its attempt ends.
func TestAnAttemptIsDecidedAgainOnlyByItsOwnClaim(t *testing.T) {
	t.Parallel()
	claimed := attempted()
	for name, c := range map[string]struct {
		change func(*Run)
		want   bool
	}{
		"asked to cancel":  {func(r *Run) { r.CancelRequested = true }, true},
		"another attempt":  {func(r *Run) { r.Attempt++ }, false},
		"another claim":    {func(r *Run) { r.Token = newToken }, false},
		"waits for others": {func(r *Run) { r.State = Scheduled }, false},
	} {
		now := claimed
		if c.change(&now); stillClaimed(&now, &claimed) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}
