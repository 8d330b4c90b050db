package background

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

var (
	oldToken = uuid.UUID{1}
	newToken = uuid.UUID{2}
	thisMove = uuid.UUID{3}
)

// in is a run in each state, as its journal would have it.
func in(s State) Run {
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

func TestApplyEveryStateWithEveryFact(t *testing.T) {
	t.Parallel()
	next := noon.Add(time.Second)
	facts := map[receipts.Subtype]Move{
		receipts.AttemptStarted:     {Token: newToken},
		receipts.AttemptSucceeded:   {Result: paid},
		receipts.RetryScheduled:     {Result: refused, Spend: SpendAttempt, NextRetryAt: next},
		receipts.AttemptInterrupted: {Result: vague, Spend: SpendRecovery, NextRetryAt: next},
		receipts.DeadLettered:       {Result: refused, Spend: SpendAttempt, Reason: ReasonFinal},
		receipts.Cancelled:          {},
		receipts.Reconciled:         {Result: paid},
		receipts.AnsweredLate:       {Result: refused},
	}
	// What each cell leads to; a state that is not listed is refused with ErrLostGuard.
	want := map[receipts.Subtype]map[State]any{
		receipts.AttemptStarted:     {Pending: Running, Scheduled: Running, DeadLettered: ErrDead},
		receipts.AttemptSucceeded:   {Running: Succeeded},
		receipts.RetryScheduled:     {Running: Scheduled},
		receipts.AttemptInterrupted: {Running: Scheduled},
		receipts.DeadLettered:       {Running: DeadLettered, Pending: DeadLettered, Scheduled: DeadLettered},
		receipts.Cancelled:          {Running: Cancelled, Pending: Cancelled, Scheduled: Cancelled},
		receipts.Reconciled:         {Pending: Succeeded, Scheduled: Succeeded, DeadLettered: DeadLettered, Cancelled: Cancelled},
		receipts.AnsweredLate: {Pending: Pending, Scheduled: Scheduled, Running: Running, Succeeded: Succeeded,
			DeadLettered: DeadLettered, Cancelled: Cancelled},
	}
	for fact, m := range facts {
		for _, s := range []State{Pending, Running, Scheduled, Succeeded, DeadLettered, Cancelled} {
			t.Run(fmt.Sprintf("%s on %s", fact, s), func(t *testing.T) {
				t.Parallel()
				m := m
				m.Fact, m.At, m.ID, m.Run = fact, noon, thisMove, in(s)
				got, err := m.Apply(in(s))
				switch w := want[fact][s].(type) {
				case State:
					if err != nil || got.State != w || got.LastMove != thisMove {
						t.Errorf("got %+v, %v; want %s", got, err, w)
					}
				case error:
					refuses(t, in(s), got, err, w)
				default:
					refuses(t, in(s), got, err, ErrLostGuard)
				}
			})
		}
	}
}

func refuses(t *testing.T, before, got Run, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Error("a refused move changed the run: ", diff)
	}
}

func TestApplyGuards(t *testing.T) {
	t.Parallel()
	retry := Move{Fact: receipts.RetryScheduled, Result: refused, Spend: SpendAttempt, At: noon, NextRetryAt: noon}
	buried := Move{Fact: receipts.DeadLettered, Reason: ReasonOutcomeUnknown, At: noon}
	changed := func(s State, f func(*Run)) Run { r := in(s); f(&r); return r }
	for name, c := range map[string]struct {
		m    Move
		seen Run
		now  Run
		want error
	}{
		"not due": {Move{Fact: receipts.AttemptStarted, At: noon}, in(Scheduled),
			changed(Scheduled, func(r *Run) { r.DueAt = noon.Add(1) }), ErrNotDue},
		"due this moment": {Move{Fact: receipts.AttemptStarted, At: noon}, Run{},
			changed(Scheduled, func(r *Run) { r.DueAt = noon }), nil},
		"another attempt": {retry, in(Running), changed(Running, func(r *Run) { r.Attempt++ }), ErrLostGuard},
		"another token":   {retry, in(Running), changed(Running, func(r *Run) { r.Token = newToken }), ErrLostGuard},
		"cancel asked":    {retry, in(Running), changed(Running, func(r *Run) { r.CancelAsked = true }), ErrLostGuard},
		"cancel was known": {retry, changed(Running, func(r *Run) { r.CancelAsked = true }),
			changed(Running, func(r *Run) { r.CancelAsked = true }), nil},
		"cancel of an unknown": {Move{Fact: receipts.Cancelled}, in(Scheduled),
			changed(Scheduled, func(r *Run) { r.Class = Unknown }), ErrReconcileFirst},
		"cancel while another run is unknown": {Move{Fact: receipts.Cancelled}, in(Pending),
			changed(Pending, func(r *Run) { r.UnknownOpen = 1 }), ErrReconcileFirst},
		"death of a run tried since": {buried, in(Scheduled), changed(Scheduled, func(r *Run) { r.Attempt++ }), ErrLostGuard},
		"death of a run cleared since": {buried, changed(Scheduled, func(r *Run) { r.Class = Unknown }),
			changed(Scheduled, func(r *Run) { r.Class = NotExecuted }), ErrLostGuard},
		"finding of a run that was called since": {Move{Fact: receipts.Reconciled, Result: refused}, in(Scheduled), changed(Scheduled, func(r *Run) { r.Attempt++ }), ErrLostGuard},
		"a forked letter found paid": {Move{Fact: receipts.Reconciled, Result: paid}, in(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter = LetterForked }), nil},
		"a forked letter found paid again": {Move{Fact: receipts.Reconciled, Result: paid}, in(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter, r.Class = LetterForked, Executed }), ErrLostGuard},
		"a forked letter found unpaid": {Move{Fact: receipts.Reconciled, Result: refused}, in(DeadLettered),
			changed(DeadLettered, func(r *Run) { r.Letter = LetterForked }), ErrLostGuard},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.m.Run = c.seen
			got, err := c.m.Apply(c.now)
			if c.want != nil {
				refuses(t, c.now, got, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := (Move{Fact: receipts.Submitted, Run: in(Running)}).Apply(in(Running)); err == nil || errors.Is(err, ErrLostGuard) {
		t.Errorf("a fact that ends no attempt: %v", err)
	}
}

func TestClaimCountsTheAttemptAndKeepsTheFirstSending(t *testing.T) {
	t.Parallel()
	m := Move{ID: thisMove, Fact: receipts.AttemptStarted, At: noon, Token: newToken}
	first, err := m.Apply(in(Pending))
	if err != nil || first.Attempt != 1 || first.Token != newToken || !first.FirstSentAt.Equal(noon) {
		t.Errorf("first %+v, %v", first, err)
	}
	later, err := m.Apply(in(Scheduled))
	if err != nil || later.Attempt != 3 || !later.FirstSentAt.Equal(noon.Add(-time.Minute)) {
		t.Errorf("later %+v, %v", later, err)
	}
}

func TestEndsSpendTheirBudgetAndKeepTheFailure(t *testing.T) {
	t.Parallel()
	for spend, want := range map[Spend][2]int{SpendNothing: {0, 0}, SpendAttempt: {1, 0}, SpendRecovery: {0, 1}} {
		m := Move{Run: in(Running), Fact: receipts.RetryScheduled, Spend: spend, Result: refused, NextRetryAt: noon}
		got, err := m.Apply(in(Running))
		if err != nil || got.BudgetSpent != want[0] || got.Recoveries != want[1] || got.Failure != failure || !got.DueAt.Equal(noon) {
			t.Errorf("spend %d: %+v, %v", spend, got, err)
		}
	}
	m := Move{Run: in(Running), Fact: receipts.DeadLettered, At: noon, Result: declined, Reason: ReasonFinal}
	if got, err := m.Apply(in(Running)); err != nil || got.Letter != LetterOpen || !got.DeadAt.Equal(noon) || got.Reason != ReasonFinal {
		t.Errorf("death: %+v, %v", got, err)
	}
}

func TestWhatIsKnownOfTheMoney(t *testing.T) {
	t.Parallel()
	running := func(c Class, open int) Run { r := in(Running); r.Class, r.UnknownOpen = c, open; return r }
	ended := receipts.RetryScheduled
	for name, c := range map[string]struct {
		now  Run
		m    Move
		want Class
		open int
	}{
		"refused":                      {running("", 0), Move{Fact: ended, Result: refused}, NotExecuted, 0},
		"unknown":                      {running("", 0), Move{Fact: ended, Result: vague}, Unknown, 1},
		"unknown again":                {running(Unknown, 1), Move{Fact: ended, Result: vague}, Unknown, 2},
		"refused clears no unknown":    {running(Unknown, 1), Move{Fact: ended, Result: refused}, Unknown, 1},
		"executed clears all":          {running(Unknown, 2), Move{Fact: receipts.AttemptSucceeded, Result: paid}, Executed, 0},
		"looked up: executed":          {running(Unknown, 2), Move{Fact: receipts.AttemptSucceeded, Result: vague, Lookup: Executed}, Executed, 0},
		"looked up: not executed":      {running(Unknown, 2), Move{Fact: receipts.DeadLettered, Result: vague, Lookup: NotExecuted}, NotExecuted, 0},
		"looked up: nobody knows":      {running(Unknown, 2), Move{Fact: receipts.DeadLettered, Result: vague, Lookup: Unknown}, Unknown, 3},
		"late: executed":               {running(Unknown, 1), Move{Fact: receipts.AnsweredLate, Result: paid}, Executed, 0},
		"late: refused clears nothing": {running(Unknown, 1), Move{Fact: receipts.AnsweredLate, Result: refused}, Unknown, 1},
		"late: refused, none unknown":  {running(NotExecuted, 0), Move{Fact: receipts.AnsweredLate, Result: refused}, NotExecuted, 0},
		"late: unknown adds nothing":   {running(Unknown, 1), Move{Fact: receipts.AnsweredLate, Result: vague}, Unknown, 1},
		"executed stays, refused":      {running(Executed, 0), Move{Fact: ended, Result: refused}, Executed, 0},
		"executed stays, unknown":      {running(Executed, 0), Move{Fact: ended, Result: vague}, Executed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.m.Run = c.now
			got, err := c.m.Apply(c.now)
			if err != nil || got.Class != c.want || got.UnknownOpen != c.open {
				t.Errorf("class %q, %d open, %v; want %q, %d", got.Class, got.UnknownOpen, err, c.want, c.open)
			}
		})
	}
}

func TestReconcileClearsOrCloses(t *testing.T) {
	t.Parallel()
	letter := in(DeadLettered)
	letter.Class, letter.UnknownOpen = Unknown, 1
	cleared, err := Move{Fact: receipts.Reconciled, Run: letter, Result: refused}.Apply(letter)
	if err != nil || cleared.Letter != LetterOpen || cleared.Class != NotExecuted || cleared.UnknownOpen != 0 {
		t.Errorf("not executed: %+v, %v", cleared, err)
	}
	closed, err := Move{Fact: receipts.Reconciled, Run: letter, Result: paid}.Apply(letter)
	if err != nil || closed.Letter != LetterReconciled || closed.Holds() {
		t.Errorf("executed: %+v, %v", closed, err)
	}
}
