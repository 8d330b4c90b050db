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
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/localredis"
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

// A claim whose call was never made proves that nothing was sent.
func TestACallThatWasNotMadeProvesThatNothingWasPaid(t *testing.T) {
	t.Parallel()
	if done := notCalled("the process shut down"); done.result.Class != NotExecuted || !done.interrupted || !provenUnpaid(new(attempted()), &done.result) {
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
		if archived := errors.Is(err, asynq.SkipRetry); archived != slices.Contains(c.want, receipts.DeadLettered) {
			t.Errorf("%s: its task is archived: %v", name, archived)
		}
		var again *redeliverAt
		if errors.As(err, &again) != (c.want == nil) || again != nil && !again.at.Equal(noon.Add(3*time.Second)) {
			t.Errorf("%s: delivered again by %v", name, err)
		}
	}
}

// memoryJournal keeps runs by Transition.Apply. What a test does not set up panics.
type memoryJournal struct {
	Store
	refuse   func(Transition) error       // if it returns an error, nothing is recorded
	answer   func(context.Context) Result // of lookups
	attempts []Run                        // under every session
	due      []Run                        // in order, paused or not
	sessions []Session
	breaker  circuit.Breaker // of the target without a name

	mu       sync.Mutex
	runs     map[RunID]Run
	recorded []Transition
	removed  []SessionID
	renewed  []RunID // runs that were to get a new notification; another process is first each time
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
	after, err := applied(&tr, now)
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

func (j *memoryJournal) Find(_ context.Context, id RunID) (Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[id], nil
}

func (j *memoryJournal) RunStatuses(_ context.Context, ids []RunID) (found []Run, _ error) {
	for _, id := range ids {
		if run, known := j.runs[id]; known {
			found = append(found, run)
		}
	}
	return found, nil
}

func (j *memoryJournal) DueRuns(_ context.Context, after Cursor, _ time.Time, limit int) ([]Run, error) {
	from := 1 + slices.IndexFunc(j.due, func(r Run) bool { return r.ID == after.ID })
	return slices.Clone(j.due[from:min(from+limit, len(j.due))]), nil
}

func (j *memoryJournal) AdvanceNotifications(_ context.Context, runs []Run) ([]Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range runs {
		j.renewed = append(j.renewed, r.ID)
	}
	return nil, nil
}

func (j *memoryJournal) Sessions(context.Context) ([]Session, error) { return j.sessions, nil }

func (j *memoryJournal) Breakers(context.Context) (open []circuit.Breaker, _ error) {
	if j.breaker.Blocks() {
		open = append(open, j.breaker)
	}
	return open, nil
}

func (j *memoryJournal) BreakerChangedAt(context.Context, circuit.Scope) (time.Time, error) {
	return time.Time{}, nil
}

func (j *memoryJournal) UpdateBreaker(_ context.Context, _ circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (circuit.Breaker, bool, error) {
	next, changed := decide(j.breaker)
	if changed {
		j.breaker = next
	}
	return j.breaker, changed, nil
}

func (j *memoryJournal) PausedRuns(context.Context, PausedQuery) ([]Run, error) {
	return slices.Clone(j.due), nil
}

func (j *memoryJournal) RecordPaused(context.Context, string, circuit.Scope, time.Time) error {
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

// connected returns an unconnected manager that has a Redis.
func connected(t *testing.T, run Run, change ...func(*Config)) (*Manager, *memoryJournal) {
	t.Helper()
	server, err := localredis.Start(t.Context(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return unconnected(t, run, append(change, func(c *Config) {
		c.Redis = asynq.RedisClientOpt{Addr: server.Addr(), Password: server.Password()}
	})...)
}

// taskIn returns a waiting run that was due for some time, and whose task Redis has in a state of asynq; empty: it has none.
func taskIn(t *testing.T, m *Manager, j *memoryJournal, overdue time.Duration, state string) Run {
	t.Helper()
	run := runIn(Scheduled)
	run.ID, run.Family, run.Queue, run.NotificationNumber, run.DueAt = RunID(uuid.New()), "pay", "pay:0", 1, noon.Add(-overdue)
	if state != "" {
		if err := m.redis.HSet(t.Context(), taskKey(run.Queue, taskID(run)), "msg", "", "state", state).Err(); err != nil {
			t.Fatal(err)
		}
	}
	j.runs[run.ID], j.due = run, append(j.due, run)
	return run
}

// change changes a run of the journal.
func (j *memoryJournal) change(run Run, change func(*Run)) {
	change(&run)
	j.runs[run.ID] = run
	j.due[slices.IndexFunc(j.due, func(r Run) bool { return r.ID == run.ID })] = run
}

// The journal's refusal of a claim decides what becomes of the task. Usual refusals are not logged.
func TestWhatBecomesOfTheTaskOfARefusedClaim(t *testing.T) {
	t.Parallel()
	const acknowledged, archived = -1, -2 // in place of the time until it is delivered again
	for name, c := range map[string]struct {
		cause  error
		letter LetterStatus
		number int
		want   time.Duration
		logged string
	}{
		"an open dead letter":                   {ErrDeadLettered, LetterOpen, 1, archived, ""},
		"a task that another program named":     {ErrDeadLettered, LetterOpen, -1, acknowledged, ""},
		"a forked dead letter":                  {ErrDeadLettered, LetterForked, 1, acknowledged, ""},
		"a reconciled dead letter":              {ErrDeadLettered, LetterReconciled, 1, acknowledged, ""},
		"a purged dead letter":                  {ErrDeadLettered, LetterPurged, 1, acknowledged, ""},
		"changed meanwhile":                     {ErrConflict, NoLetter, 1, acknowledged, ""},
		"calls that may still pay":              {ErrTooManyOutstandingCalls, NoLetter, 1, outstandingCallsDelay, ""},
		"another process calls the target":      {ErrTargetUnknown, NoLetter, 1, unknownTargetDelay, "runs wait for a process that calls their target"},
		"a newer program can read the run":      {ErrUnreadable, NoLetter, 1, unreadableDelay, ""},
		"a refusal that this program knows not": {errors.New("quota"), NoLetter, 1, time.Minute, "run cannot be claimed"},
	} {
		run := attempted()
		run.Letter = c.letter
		core, logs := observer.New(zap.WarnLevel)
		m, j := unconnected(t, run, func(cfg *Config) { cfg.Logger = zap.New(core) })
		d := &delivery{m: m, family: j, run: run, notificationNumber: c.number}
		claimAgain, err := d.onClaimRefused(c.cause)
		got := time.Duration(acknowledged)
		var again *redeliverAt
		switch {
		case errors.As(err, &again):
			got = again.at.Sub(noon)
		case errors.Is(err, asynq.SkipRetry):
			got = archived
		}
		var logged []string
		for _, entry := range logs.All() {
			logged = append(logged, entry.Message)
		}
		if claimAgain || got != c.want || len(logged) != min(1, len(c.logged)) || c.logged != "" && !slices.Contains(logged, c.logged) {
			t.Errorf("%s: %s, %v, logged %q", name, got, err, logged)
		}
	}
}

// The task of a run that this process has in flight is acknowledged, unless it may be the one that was given back to
// asynq: that one stays, and comes again after a second, however often it came.
func TestATaskThatWasGivenBackComesAgainEverySecond(t *testing.T) {
	t.Parallel()
	run := attempted()
	m, _ := unconnected(t, run)
	inFlight, _ := m.inFlight.acquire(run.ID, 1)
	task := asynq.NewTask("pay", []byte(run.ID.String()))
	if err := m.consumer.process(t.Context(), task); err != nil {
		t.Errorf("a second task is not acknowledged: %v", err)
	}
	inFlight.handOff()
	err := m.consumer.process(t.Context(), task)
	for _, deliveries := range []int{0, 1, 9} {
		if again := m.consumer.redeliverIn(deliveries, err, task); err == nil || again != time.Second {
			t.Errorf("%v, delivered again %s after delivery %d", err, again, deliveries)
		}
	}
}
