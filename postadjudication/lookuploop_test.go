package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// withLookups turns the lookup loop on, at a pace that a test can wait for.
func withLookups(c *postadjudication.Config) {
	c.TimeLimit, c.LostAfter, c.Policy.MaxRetryAttempts = 50*time.Millisecond, 3*time.Second, 1
	c.Lookups = postadjudication.LookupRule{Every: 20 * time.Millisecond, FirstPause: 100 * time.Millisecond, MaxPause: 200 * time.Millisecond, PerSecond: 100}
}

// lookupScript is a sequence of an escrow service's answers to lookups; the last one repeats.
type lookupScript struct {
	mu      sync.Mutex
	answers []escrow.Answer
	askedAt []time.Time
}

func (l *lookupScript) answer(escrow.Call) escrow.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.askedAt = append(l.askedAt, time.Now())
	a := l.answers[0]
	if len(l.answers) > 1 {
		l.answers = l.answers[1:]
	}
	return a
}

func (l *lookupScript) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.askedAt)
}

func (l *lookupScript) setAnswers(answers ...escrow.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = answers
}

var (
	answerAbsent  = escrow.Answer{Class: escrow.NotExecuted}
	answerUnknown = escrow.Answer{Class: escrow.Unknown, Type: "http.unavailable"}
)

func answerExecuted(minor int64) escrow.Answer {
	return escrow.Answer{Class: escrow.Executed, Moved: minor, Reference: "pay_1"}
}

// unknownLetter returns a rig with a letter whose only call got no answer.
func unknownLetter(t *testing.T, change ...func(*postadjudication.Config)) (*rig.Rig, *lookupScript, postadjudication.Submitted) {
	t.Helper()
	r := rig.New(t, append([]func(*postadjudication.Config){withLookups}, change...)...)
	r.Escrow.Answer(rig.GivesNoAnswer)
	l := &lookupScript{answers: []escrow.Answer{answerUnknown}}
	r.Escrow.ScriptLookups(l.answer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	return r, l, s
}

// A lookup finds a payment whose answers were all lost, and closes its letter.
func TestAPaymentIsFoundByAnotherLookup(t *testing.T) {
	t.Parallel()
	r, l, s := unknownLetter(t)
	head := r.Head(s.Case)
	r.WaitAsked(2)
	if now := r.Head(s.Case); now != head {
		t.Errorf("answers without new information moved the head from %d to %d", head, now)
	}
	l.setAnswers(answerExecuted(1000))
	r.WaitSettled(1)
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterReconciled || r.Head(s.Case) != head+1 {
		t.Errorf("head %d, %+v, %v", r.Head(s.Case), st, err)
	}
	r.WaitLookups(0)
	r.Wait("its lookups are counted", func() bool { return r.Health().Stats().Lookups.Closed == 1 })
	if st := r.Health().Stats().Lookups; st.Cleared != 0 || st.Asked < 3 {
		t.Errorf("%+v", st)
	}
}

// No lookup is made while a call of the letter can be in flight.
func TestNothingIsAskedWhileACallCanBeOnItsWay(t *testing.T) {
	t.Parallel()
	const flight = 2 * time.Second
	r, l, _ := unknownLetter(t, func(c *postadjudication.Config) { c.Executor.(*rig.Escrow).Flight = flight })
	r.Wait("a lookup after the death", func() bool { return l.count() > 1 }) // once before
	var died time.Time
	if err := r.DB.QueryRow(`SELECT dead_at FROM recourse.runs`).Scan(&died); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	const bound = 600*time.Millisecond + 50*time.Millisecond + flight // call bound, time limit and in-flight time
	if waited := l.askedAt[1].Sub(died); waited < bound {
		t.Errorf("looked up after %s, want at least %s", waited, bound)
	}
}

// A first answer of not executed, as from a replica that lags, is not believed; a later executed is.
func TestALookupThatLiesOnceIsNotBelieved(t *testing.T) {
	t.Parallel()
	r, l, _ := unknownLetter(t)
	l.setAnswers(answerAbsent, answerExecuted(1000))
	r.WaitSettled(1)
	r.Wait("its lookups are counted", func() bool { return r.Health().Stats().Lookups.Closed == 1 })
	if st := r.Health().Stats().Lookups; st.Cleared != 0 {
		t.Errorf("%+v", st)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Reconciled}); n != 1 {
		t.Errorf("%d findings", n)
	}
}

// After a second answer of not executed, in-flight time apart, the letter is cleared: it can be forked, also by a rule.
func TestALetterIsClearedWhenItIsSaidTwice(t *testing.T) {
	t.Parallel()
	const flight = 500 * time.Millisecond
	r, l, s := unknownLetter(t, func(c *postadjudication.Config) { c.Executor.(*rig.Escrow).Flight = flight })
	absent := time.Now()
	l.setAnswers(answerAbsent)
	r.WaitCase("no outcome is unknown", rig.Release(1), func(c casestatus.Case) bool { return c.UnknownOpen == 0 })
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Class != escrow.NotExecuted || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	l.mu.Lock()
	// A lookup whose finding met another change is made again, so that the last two may be close.
	if n := len(l.askedAt); n < 2 || l.askedAt[n-2].Before(absent) || l.askedAt[n-1].Sub(absent) < flight {
		t.Errorf("looked up at %v", l.askedAt)
	}
	l.mu.Unlock()
	r.Wait("it is counted", func() bool { return r.Health().Stats().Lookups.Cleared == 1 })
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), s.Run, rig.ForkRequest); err != nil {
		t.Error(err)
	}
}

// A payment of another amount than was left waits for a person, and the letter says so.
func TestAnotherSumIsForAPerson(t *testing.T) {
	t.Parallel()
	r, l, s := unknownLetter(t)
	head := r.Head(s.Case)
	l.setAnswers(answerExecuted(400))
	r.WaitLookupWaits(deadletter.LookupOtherAmount)
	asked := l.count()
	i, err := r.As("acme", "").DeadLetters.Inspect(context.Background(), s.Run)
	if err != nil || i.Lookups == nil || i.Lookups.WaitsFor != deadletter.LookupOtherAmount || i.Lookups.Moved != 400 || i.Lookups.NextAt != nil || r.Head(s.Case) != head {
		t.Errorf("head %d, %+v, %v", r.Head(s.Case), i.Lookups, err)
	}
	if levels, err := r.Health().Levels(context.Background()); err != nil || levels.Unknown.ForPerson != 1 || levels.Unknown.ForLookup != 0 {
		t.Errorf("%+v, %v", levels.Unknown, err)
	}
	if l.count() != asked {
		t.Error("looked up again")
	}
	// The answer of the service needs no confirmation of its sum, once a person asks for it in time.
	r.Wait("the service answers in time", func() bool {
		_, err := r.As("acme", "user:ada").DeadLetters.Lookup(context.Background(), s.Run)
		if err != nil && !strings.Contains(err.Error(), "timed out") {
			t.Fatal(err)
		}
		return err == nil
	})
	if c := r.CaseOf(rig.Release(1)); c.Released != 400 || c.UnknownOpen != 0 || l.count() == asked {
		t.Errorf("%+v", c)
	}
}

// Past the lookup lifetime only a finding counts, and the letter says so.
func TestLookupsEndWhenTheKeyMayBeForgotten(t *testing.T) {
	t.Parallel()
	r, l, s := unknownLetter(t, func(c *postadjudication.Config) { c.Executor.(*rig.Escrow).KeyLife = 0 })
	l.setAnswers(answerAbsent)
	r.WaitLookupWaits("forgotten")
	if n := r.TimesAsked(); n != 1 {
		t.Errorf("looked up %d times; a single answer of executed is believed", n)
	}
	if i, err := r.As("acme", "").DeadLetters.Inspect(context.Background(), s.Run); err != nil || i.Lookups == nil || i.Lookups.WaitsFor != deadletter.LookupKeyForgotten || i.Case.UnknownOpen != 1 {
		t.Errorf("%+v, %v", i.Lookups, err)
	}
}

// A held letter, and one whose call has not returned, are not looked up.
func TestAHeldLetterAndAnOutstandingCallAreLeftAlone(t *testing.T) {
	t.Parallel()
	rules := func(c *postadjudication.Config) {
		withLookups(c)
		withTargets("other")(c)
		c.LostAfter = 15 * time.Second
	}
	r := rig.New(t, rules, func(c *postadjudication.Config) { c.Lookups = postadjudication.LookupRule{Off: true} })
	ctx := context.Background()
	answer := make(chan escrow.Answer)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 400 {
			return <-answer
		}
		return rig.NoAnswer()
	})
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return answerUnknown })
	var runs []postadjudication.Submitted
	for n, minor := range []int64{400, 500, 600} {
		a := rig.Release(n)
		a.Amount.Minor = minor
		runs = append(runs, r.MustSubmit(a))
	}
	r.StartWorkers()
	r.WaitLetters(3)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, runs[1].Run, "in court"); err != nil {
		t.Fatal(err)
	}
	r.OtherProcess(rules).StartWorkers()
	r.WaitAsked(3)
	if n := r.CountRows("lookups"); n != 1 {
		t.Errorf("%d letters looked up", n)
	}
	close(answer)
}

// A finding between a lookup and its answer wins.
func TestAFindingBeforeTheAnswerStays(t *testing.T) {
	t.Parallel()
	r, _, s := unknownLetter(t, func(c *postadjudication.Config) { c.TimeLimit = 2 * time.Second })
	ctx := context.Background()
	once, answers := make(chan struct{}), make(chan escrow.Answer)
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer {
		select {
		case once <- struct{}{}:
			return <-answers
		default:
			return rig.NoAnswer()
		}
	})
	<-once
	if _, err := r.Reconcile(ctx, "acme", s.Run, deadletter.Finding{Reason: "statement", Reference: "stmt-1", Class: escrow.Executed, Moved: 1000}); err != nil {
		t.Fatal(err)
	}
	answers <- answerExecuted(1000)
	r.WaitLookups(0)
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Reconciled}); n != 1 {
		t.Errorf("%d findings", n)
	}
}

// Two processes share one lookup rate, and one continues where the other stopped.
func TestTwoProcessesLookUpOnce(t *testing.T) {
	t.Parallel()
	slow := func(c *postadjudication.Config) { c.Lookups.FirstPause, c.Lookups.MaxPause = time.Hour, time.Hour }
	r, l, _ := unknownLetter(t, slow, func(c *postadjudication.Config) { c.Worker = "first" })
	second := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withLookups, slow, func(c *postadjudication.Config) { c.Worker = "second" }).StartWorkers()
	r.WaitAsked(1)
	r.StopWorkers()
	if _, err := r.DB.Exec(`UPDATE recourse.lookups SET next_at = now()`); err != nil {
		t.Fatal(err)
	}
	second.WaitAsked(2)
	if n := l.count(); n > 3 { // one of them before it became a letter, if the attempt had time for it
		t.Errorf("looked up %d times", n)
	}
}

// An escrow service whose breaker is open is not looked up at, another one is.
func TestNothingIsLookedUpWhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withLookups, withTargets("other"), func(c *postadjudication.Config) { c.LostAfter = 15 * time.Second })
	ctx := context.Background()
	r.Escrow.Answer(rig.GivesNoAnswer)
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return answerUnknown })
	r.MustSubmit(rig.Release(1))
	other := rig.Release(2)
	other.Target = "other"
	r.MustSubmit(other)
	r.StartWorkers()
	r.WaitLetters(2)
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, "other", "maintenance"); err != nil {
		t.Fatal(err)
	}
	r.WaitAsked(3)
	if n := r.CountRows("lookups"); n != 1 {
		t.Errorf("%d letters looked up", n)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, "other", "over"); err != nil {
		t.Fatal(err)
	}
	r.WaitLookups(2)
}

// A letter whose answer can't be recorded is skipped for a while: it is not looked up in every
// round, and does not block others.
func TestALetterThatCanNotBeRecordedIsNotAskedAboutInEveryRound(t *testing.T) {
	t.Parallel()
	r, l, s := unknownLetter(t)
	if _, err := r.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (subject <> 'txr_1' OR released = 0)`); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[background.RunID]int{}
	r.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer {
		mu.Lock()
		defer mu.Unlock()
		if asked[c.Run]++; c.Run == s.Run {
			return answerExecuted(1000)
		}
		return l.answer(c)
	})
	times := func(run background.RunID) int {
		mu.Lock()
		defer mu.Unlock()
		return asked[run]
	}
	r.Wait("asked about", func() bool { return times(s.Run) > 0 })
	other := r.MustSubmit(rig.Release(2))
	r.WaitLetter(other.Run)
	before, othersBefore := times(s.Run), times(other.Run)
	r.Wait("the other was asked about again and again", func() bool { return times(other.Run)-othersBefore >= 8 })
	if n, others := times(s.Run)-before, times(other.Run)-othersBefore; n+2 > others { // in every round it would be as many
		t.Errorf("looked up %d times while the other was looked up %d times", n, others)
	}
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterOpen || st.Class != escrow.Unknown {
		t.Errorf("%+v, %v", st, err)
	}
}

// lettersARound is how many letters a round of the lookup loop asks about.
const lettersARound = 100

// manyUnknownLetters returns a rig with more letters of one escrow service than a round looks up.
// The test scripts their calls.
func manyUnknownLetters(t *testing.T, call func() escrow.Answer) *rig.Rig {
	t.Helper()
	r := rig.New(t, withLookups, withTargets("other"), func(c *postadjudication.Config) { c.LostAfter = 15 * time.Second })
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Target == "other" {
			return call()
		}
		return rig.NoAnswer()
	})
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return answerUnknown })
	batch := make([]postadjudication.Adjudication, lettersARound+1)
	for n := range batch {
		batch[n] = rig.Release(n)
		batch[n].Target = "other"
	}
	if _, errs := r.SubmitBatch(context.Background(), batch); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	r.StartWorkers()
	r.WaitLetters(len(batch))
	return r
}

// untilOtherLetterLookedUp waits until one more letter, of another escrow service, is looked up.
func untilOtherLetterLookedUp(r *rig.Rig) postadjudication.Submitted {
	r.T.Helper()
	s := r.MustSubmit(rig.Release(1000))
	r.WaitAskedAbout(s.Run, 1)
	return s
}

// Letters of an escrow service whose breaker is open, however many and however old, do not block
// lookups at another one, neither first nor later ones.
func TestLettersBehindAnOpenBreakerKeepNoOtherFromItsTurn(t *testing.T) {
	t.Parallel()
	r := manyUnknownLetters(t, rig.NoAnswer)
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, "other", "maintenance"); err != nil {
		t.Fatal(err)
	}
	s := untilOtherLetterLookedUp(r)
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, "other", "over"); err != nil {
		t.Fatal(err)
	}
	r.WaitLookups(lettersARound + 2)
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, "other", "maintenance"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.DB.Exec(`UPDATE recourse.lookups l SET next_at = now() - interval '1 hour' FROM recourse.runs r WHERE r.id = l.run_id AND r.target = 'other'`); err != nil {
		t.Fatal(err)
	}
	r.WaitAskedAbout(s.Run, r.TimesAskedAbout(s.Run)+2)
}

// Nor do letters whose calls have not returned.
func TestLettersWhoseCallsAreOutKeepNoOtherFromItsTurn(t *testing.T) {
	t.Parallel()
	back := make(chan struct{})
	defer close(back)
	untilOtherLetterLookedUp(manyUnknownLetters(t, func() escrow.Answer { <-back; return rig.NoAnswer() }))
}

// A process restarted under the same host name and pid, as in a container, is another worker:
// the former one's calls are not outstanding any more.
func TestAProcessInThePlaceOfAnotherHasNoneOfItsCalls(t *testing.T) {
	t.Parallel()
	back := make(chan struct{})
	r := rig.New(t, withLookups)
	defer close(back)
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer { <-back; return rig.NoAnswer() })
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return answerUnknown })
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	r.StopWorkers()
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withLookups).StartWorkers()
	r.WaitAskedAbout(s.Run, 1)
}
