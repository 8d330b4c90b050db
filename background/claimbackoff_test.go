package background

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// The age of a claim is the longest of all clocks: each of them can stand still or be set back.
func TestElapsedTimeIsTheLongestOfAllClocks(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		wall, mono, boot, want time.Duration
	}{
		"all agree":                   {2, 2, 2, 2},
		"wall clock set back":         {-3600, 2, 2, 2},
		"set forward":                 {3600, 2, 2, 3600},
		"suspended, wall not yet set": {1, 1, 90, 90},
		"no boot time known":          {2, 3, 0, 3},
	} {
		then := instant{wall: noon, mono: time.Second, boot: time.Second}
		later := instant{wall: noon.Add(c.wall * time.Second), mono: time.Second + c.mono*time.Second, boot: time.Second + c.boot*time.Second}
		if got := then.until(later); got != c.want*time.Second {
			t.Errorf("%s: %s, want %ds", name, got, c.want)
		}
	}
	if a, b := readClocks(), readClocks(); a.until(b) < 0 || a.until(b) > time.Minute {
		t.Errorf("the machine's own clocks: %+v, %+v", a, b)
	}
}

func TestClaimBackoffDoublesUntilAClaimIsFresh(t *testing.T) {
	t.Parallel()
	var now time.Duration
	at := func() instant { return instant{mono: now} }
	p := newClaimBackoff(zap.NewNop(), at, 15*time.Second)
	for i, step := range []struct {
		after time.Duration // since the step before
		do    func()
		left  time.Duration
	}{
		{0, func() {}, 0},
		{time.Second, p.onStaleClaim, time.Second},
		{0, p.onStaleClaim, time.Second}, // sent together
		{600 * time.Millisecond, p.onStaleClaim, 400 * time.Millisecond},
		{time.Second, func() {}, 0},
		{0, p.onStaleClaim, 2 * time.Second},
		{2 * time.Second, p.onStaleClaim, 4 * time.Second},
		{4 * time.Second, p.onStaleClaim, 8 * time.Second},
		{8 * time.Second, p.onStaleClaim, 16 * time.Second},
		{16 * time.Second, p.onStaleClaim, 30 * time.Second},
		{30 * time.Second, p.onStaleClaim, 30 * time.Second},
		{30 * time.Second, func() { p.onFreshClaim(instant{mono: now - time.Minute}) }, 0}, // sent before
		{0, p.onStaleClaim, 30 * time.Second},
		{31 * time.Second, func() { p.onFreshClaim(instant{mono: now - time.Second}) }, 0},
		{0, p.onStaleClaim, time.Second},
	} {
		now += step.after
		step.do()
		if left := p.remaining(); left != step.left {
			t.Errorf("step %d: %s left, want %s", i, left, step.left)
		}
	}
	if n := p.staleClaims.Load(); n != 11 {
		t.Errorf("%d stale claims counted", n)
	}
}

// A pause lasts at most twice LostAfter: after a stall of Postgres the runs move again within a time that the
// configuration says.
func TestClaimBackoffIsBoundedByLostAfter(t *testing.T) {
	t.Parallel()
	for lostAfter, most := range map[time.Duration]time.Duration{100 * time.Millisecond: claimBackoffMin, 3 * time.Second: 6 * time.Second, time.Hour: claimBackoffMax} {
		var now time.Duration
		p := newClaimBackoff(zap.NewNop(), func() instant { return instant{mono: now} }, lostAfter)
		for range 10 {
			p.onStaleClaim()
			if left := p.remaining(); left > most {
				t.Errorf("lost after %s: a pause of %s, want at most %s", lostAfter, left, most)
			}
			now += p.remaining()
		}
		if p.onStaleClaim(); p.remaining() != most {
			t.Errorf("lost after %s: the last pause is %s, want %s", lostAfter, p.remaining(), most)
		}
	}
}

// memoryJournal keeps runs by Transition.Apply. What a test does not set up panics.
type memoryJournal struct {
	Store
	refuse   func(Transition) error       // if it returns an error, nothing is recorded
	answer   func(context.Context) Result // of lookups
	attempts []Run                        // under every session

	mu       sync.Mutex
	runs     map[RunID]Run
	recorded []Transition
	removed  []SessionID
}

func (j *memoryJournal) Name() string                           { return "pay" }
func (j *memoryJournal) TimeLimit() time.Duration               { return time.Minute }
func (j *memoryJournal) Handle(context.Context, Attempt) Result { panic("no attempt is made") }

func (j *memoryJournal) Lookup(ctx context.Context, _ Run) Result { return j.answer(ctx) }

func (j *memoryJournal) Record(_ context.Context, tr Transition) (Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, known := j.runs[tr.Run.ID]
	if !known {
		return Run{}, ErrNotFound
	}
	if j.refuse != nil {
		if err := j.refuse(tr); err != nil {
			return now, err
		}
	}
	after, err := tr.Apply(now)
	if err == nil {
		j.runs[now.ID] = after
		j.recorded = append(j.recorded, tr)
	}
	return after, err
}

func (j *memoryJournal) AttemptsOf(context.Context, SessionID, int) ([]Run, error) {
	return j.attempts, nil
}

func (j *memoryJournal) Remove(_ context.Context, id SessionID) error {
	j.removed = append(j.removed, id)
	return nil
}

// subtypes returns the recorded transitions, once the manager has written the answers of all calls.
func (j *memoryJournal) subtypes(m *Manager) (all []receipts.Subtype) {
	m.work.Wait()
	for _, tr := range j.recorded {
		all = append(all, tr.Subtype)
	}
	return all
}

// unconnected returns a manager of a journal with one run. It has no Redis.
func unconnected(t *testing.T, run Run, change ...func(*Config)) (*Manager, *memoryJournal) {
	t.Helper()
	j := &memoryJournal{runs: map[RunID]Run{run.ID: run}}
	cfg := Config{
		Redis: asynq.RedisClientOpt{Addr: "127.0.0.1:1"}, Store: j, Families: []Family{j},
		Now: func() time.Time { return noon }, ClockSimulated: true,
	}
	for _, c := range change {
		c(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, j
}

// A claim whose call was never made proves that nothing was sent.
func TestACallThatWasNotMadeProvesThatNothingWasPaid(t *testing.T) {
	t.Parallel()
	if done := notCalled("the process shut down"); done.result.Class != NotExecuted || !done.interrupted || !provenUnpaid(attempted(), done.result) {
		t.Errorf("%+v", done)
	}
}

// After its context ended, a call still tells that it paid or that it sent nothing. Another refusal proves nothing:
// the service may have answered the cancel.
func TestAnAnswerAfterTheCancelCountsOnlyIfItProvesSomething(t *testing.T) {
	t.Parallel()
	unsent := unsentResult("too old")
	for name, c := range map[string]struct {
		answer      Result
		class       Class
		interrupted bool
	}{
		"paid":    {paid, Executed, false},
		"unsent":  {unsent, NotExecuted, true},
		"refused": {refused, Unknown, false},
	} {
		answers := make(chan Result, 1)
		answers <- c.answer
		done := callOutcome{lateAnswer: answers, result: unknownResult(FailureTimeout, "no answer")}
		if done.awaitAfterCancel(answers); done.result.Class != c.class || done.interrupted != c.interrupted || done.lateAnswer != nil {
			t.Errorf("%s: %+v", name, done)
		}
	}
}

// A lookup that proves nothing yet and states when to ask again ends nothing: the run waits.
func TestALookupBeforeAClaimWaitsForAnAnswerThatComes(t *testing.T) {
	t.Parallel()
	later := vague
	later.RetryAfter = 3 * time.Second
	for name, c := range map[string]struct {
		lookup     Result
		claimAgain bool
		want       []receipts.Subtype
	}{
		"unknown, ask again":         {later, false, nil},
		"unknown":                    {vague, false, []receipts.Subtype{receipts.DeadLettered}},
		"refused":                    {refused, true, []receipts.Subtype{receipts.Reconciled}},
		"refused, with a retry time": {Result{Class: NotExecuted, RetryAfter: 3 * time.Second, Failure: failure}, true, []receipts.Subtype{receipts.Reconciled}},
		"paid":                       {paid, false, []receipts.Subtype{receipts.Reconciled}},
	} {
		run := runIn(Scheduled)
		run.ID, run.Family, run.Class, run.UnknownOpen = RunID(uuid.New()), "pay", Unknown, 1
		m, j := unconnected(t, run)
		j.answer = func(context.Context) Result { return c.lookup }
		d := &delivery{m: m, family: j, run: run, probe: true}
		claimAgain, err := d.lookupBeforeClaim()
		if got := j.subtypes(m); claimAgain != c.claimAgain || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, recorded %v", name, claimAgain, err, got)
		}
		var again *redeliverAt
		if errors.As(err, &again) != (c.want == nil) || again != nil && !again.at.Equal(noon.Add(3*time.Second)) {
			t.Errorf("%s: delivered again by %v", name, err)
		}
	}
}
